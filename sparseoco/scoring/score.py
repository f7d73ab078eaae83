"""Scoring: every document of a corpus of any size gets the scores of one or several models.

The corpus is cut and read as by an ingest (`sparseoco.text.passes`), and each split becomes one part, which is
named by all that it depends on. Nothing is visible before the manifest is committed: a run that was killed reuses the
parts that it finds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.core.logs import log_event
from sparseoco.scoring import parts as scored
from sparseoco.scoring.distribution import write_distribution
from sparseoco.scoring.kept import DESCRIPTION, check_writable, keep, ranking, read_kept, remove_unlisted
from sparseoco.scoring.options import ScoreOptions
from sparseoco.scoring.parts import Listed, ModelEntry, ScoredSource, ScoreManifest, Scoring, remove_other_files
from sparseoco.storage.commit import remove_file
from sparseoco.storage.locations import Location
from sparseoco.store.shards import add_files, write_quarantine
from sparseoco.text.array_files import clear_staging, staging_folder, starting_over
from sparseoco.text.formats import UNLABELLED
from sparseoco.text.options import PER_INGEST, SHARD_BYTES, TextOptions, shard_size
from sparseoco.text.passes import Tasks, TextJob, check_sources, open_tasks, pass_over, sources_beyond
from sparseoco.text.sources import Source, check_apart, check_applied, find_sources
from sparseoco.text.splits import quarantined_rows


class ScoreRun(NamedTuple):
    """Models, inputs and options of scoring into a folder.

    Parameters
    ----------
    models : tuple of ModelEntry
        Documents are read with the options of the first one.
    inputs : sequence of str
        Files, folders and remote URIs.
    out : Location
        The folder of the scores.
    options : ScoreOptions
    reading : mapping
        Options of reading that differ from those of the model's own text.
    """

    models: tuple[ModelEntry, ...]
    inputs: Sequence[str]
    out: Location
    options: ScoreOptions
    reading: Mapping[str, Any]

    def score(self, *, client: object | None = None) -> ScoreManifest:
        """Score the documents of raw text, and write those that the options keep.

        Running it again adds new inputs and skips those that were scored before; a run that was killed resumes. The
        scores depend neither on the number of workers nor on the division into parts.

        Parameters
        ----------
        client : distributed.Client, optional
            A cluster whose workers see the same files; by default the steps run in threads of this process.

        Returns
        -------
        ScoreManifest
            The committed manifest, or the previous one if there is nothing new.

        Raises
        ------
        InputError
            For input or options that cannot be used, with file and line; for a folder of the scores of other models, of
            other things, or of inputs.
        StorageError
            For a folder that cannot be written or read.
        """
        options, described = self.options, [scored.describe_model(entry) for entry in self.models]
        scored.check_columns(self.models, options.columns, labelled=options.labelled)
        text = scored.reading_options(described, self.reading, labelled=options.labelled)
        text = text.model_copy(update={"carried": options.columns})
        with open_tasks(client, "A step of scoring failed") as tasks:
            return self._score(self.out.absolute(), text, tasks)

    @starting_over("score")
    def _score(self, out: Location, text: TextOptions, tasks: Tasks) -> ScoreManifest:
        """Score what is new, then keep documents of all that was scored."""
        if self.options.keeps:
            ranking(self.models, self.options)  # raises before anything is scored
        before = self._earlier(out, text)
        job = TextJob(out, staging_folder(out, local=tasks.on_machine), text, SHARD_BYTES, tasks)
        scores = self._score_texts(job, before)
        remove_unlisted(out)
        write_distribution(job, scores, read_kept(out))
        remove_other_files(out / scored.PARTS, set(scores.parts.table["file"].to_pylist()))
        clear_staging(out)
        return scores.manifest

    def _earlier(self, out: Location, text: TextOptions) -> Listed | None:
        """What the folder has, unless it is to be replaced. Raises `InputError` if it is of other models or options."""
        found = scored.read_scores(out)
        if found is None:
            return None
        before = _options(found.manifest.models, found.manifest.options, labelled=found.manifest.labelled)
        now = _options(self.models, text.plain(), labelled=self.options.labelled)
        names = {name for name in before.keys() & now.keys() if before[name] != now[name]} - PER_INGEST
        if not names:
            return found
        if self.options.new_model == "replace":
            return None
        changed = ", ".join(sorted(names)).replace("carried", "columns")
        raise InputError(
            f"{out} has scores of another model or other options ({changed}): choose another folder, or replace "
            "them with --new-model replace.",
            code="options-changed",
        )

    def _score_texts(self, job: TextJob, before: Listed | None) -> Listed:
        """Score the inputs that are new, and write the documents that are kept."""
        known, text = () if before is None else tuple(before.sources), job.options
        sources = find_sources(list(self.inputs), text, may_be_empty=before is not None)
        check_apart(job.out, self.inputs, text, (source.absolute for source in sources))
        if before is None:
            check_applied(sources, text, tuple(self.reading))
        new = sources_beyond(known, sources, text)
        documents = self.options.keeps and self.options.keep_as == "documents"
        if documents:
            check_writable(known, sources)
        for source in new:
            if self.options.labelled and source.bytes and source.format in UNLABELLED:
                raise InputError(f"{source.path}: plain text has no labels.", code="no-labels")
        log_event("score", "sources found", new=len(new), known=len(known))
        given = self.options.shard_bytes if before is None else before.manifest.shard_bytes
        job = job._replace(shard_bytes=shard_size(given))
        work = Scoring(str(job.out), self.models, text, self.options.labelled)
        if new or before is None:
            before = self._score_sources(job, work, before, new)
        if self.options.keeps:
            keep(job, before, self.options, work if documents else None, sources)
        else:
            remove_file(job.out / DESCRIPTION)
        return before

    def _score_sources(self, job: TextJob, work: Scoring, before: Listed | None, sources: list[Source]) -> Listed:
        """Score sources, and commit the manifest of the earlier parts and these."""
        parts, digests = pass_over(job, sources, work)
        if before is None and not any(part.entry.rows for part in parts):
            raise InputError(
                "There is nothing to score: no document was read (check the option where).", code="no-documents"
            )
        rows = [0] * len(sources)
        for part in parts:
            rows[part.entry.source] += part.entry.rows
        added = [
            ScoredSource(
                path=source.absolute,
                bytes=source.bytes,
                modified_ns=source.modified_ns,
                sha256=sha256,
                rows=n,
                key=source.key,
            )
            for source, sha256, n in zip(sources, digests, rows, strict=True)
        ]
        bad = [row for part in parts for row in quarantined_rows(sources[part.entry.source].absolute, part.bad)]
        missing = {name: sum(part.missing.get(name, 0) for part in parts) for name in job.options.fields}
        earlier = None if before is None else before.manifest
        quarantine = (write_quarantine(job.out, bad),) if bad else ()
        check_sources(sources, job.options)
        first = 0 if before is None else len(before.sources)  # the position of the first of these sources
        entries = (part.entry.model_copy(update={"source": first + part.entry.source}) for part in parts)
        all_parts, all_sources = scored.PartTable.of(entries), scored.ScoredSourceTable.of(added)
        if before is not None:
            all_parts, all_sources = before.parts + all_parts, before.sources + all_sources
        manifest = ScoreManifest(
            sparseoco=__version__,
            models=self.models,
            options=job.options.plain(),
            labelled=self.options.labelled,
            rows=sum(rows) + (earlier.rows if earlier else 0),
            shard_bytes=job.shard_bytes,
            quarantined_rows=len(bad) + (earlier.quarantined_rows if earlier else 0),
            quarantine=add_files(job.out, "quarantine", earlier.quarantine if earlier else (), quarantine),
            multiline_rows=sum(part.multiline for part in parts) + (earlier.multiline_rows if earlier else 0),
            missing={name: n + (earlier.missing[name] if earlier else 0) for name, n in missing.items()},
            n_parts=len(all_parts),
            part_listing=all_parts.write(job.out, "parts"),
            n_sources=len(all_sources),
            source_listing=all_sources.write(job.out, "sources"),
        )
        return scored.commit_scores(job.out, manifest)


def _options(models: Sequence[ModelEntry], text: Mapping[str, Any], *, labelled: bool) -> dict[str, Any]:
    """What scores depend on besides the inputs."""
    named = [(model.name, model.sha256) for model in models]
    return TextOptions().plain() | {"carried": []} | dict(text) | {"labelled": labelled, "models": named}
