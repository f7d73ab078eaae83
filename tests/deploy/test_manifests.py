"""Manifests and pages of deployments."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import distributed
import jsonschema
import kubernetes_validate
import prefect.settings
import pytest
import yaml

from sparseoco.learners import find_algorithm
from sparseoco.pipeline.run_file import load_run_file

# ----------------------------------------------------------------------------------------------------------------------
# What deploy/ holds is what its readers take: schemas, names of each other, commands, settings, versions.


ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OPERATIONS = ROOT / "docs" / "operations"
KUBERNETES = "1.31"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
PLACE = "registry.example.org/"
OWN = f"sparseoco:{PROJECT['version']}"
SECRET = re.compile("AUTH_STRING|PASSWORD|SECRET|TOKEN|ACCESS_KEY|API_KEY")
# Variables of PostgreSQL's image, of Python, and of programs that ask before they phone.
OTHERS = {
    "POSTGRES_USER",
    "POSTGRES_DB",
    "POSTGRES_PASSWORD",
    "PGDATA",
    "PATH",
    "PYTHONUNBUFFERED",
    "DO_NOT_TRACK",
    "HOME",
}


def resources() -> list[dict[str, Any]]:
    """Every resource of deploy/kubernetes."""
    paths = [path for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [resource for path in paths for resource in yaml.safe_load_all(path.read_text())]


def pods(resource: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pods that a resource makes, as {metadata, spec}."""
    spec = resource.get("spec", {})
    if resource["kind"] == "DaskCluster":
        for role in ("worker", "scheduler"):
            labels = {"dask.org/cluster-name": resource["metadata"]["name"], "dask.org/component": role}
            yield {"metadata": {"labels": labels}, "spec": spec[role]["spec"]}
    elif resource["kind"] == "CronJob":
        yield spec["jobTemplate"]["spec"]["template"]
    elif "template" in spec:
        yield spec["template"]


RESOURCES = resources()
PODS = [pod for resource in RESOURCES for pod in pods(resource)]
CONTAINERS = [container for pod in PODS for container in pod["spec"]["containers"]]


def names(kind: str) -> set[str]:
    return {resource["metadata"]["name"] for resource in RESOURCES if resource["kind"] == kind}


def test_compose_is_of_its_schema() -> None:
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(COMPOSE, json.loads(schema.read_text()))


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: f"{r['kind']}-{r['metadata']['name']}")
def test_resources_are_of_their_schemas(resource: dict[str, Any]) -> None:
    if resource["kind"] != "DaskCluster":
        kubernetes_validate.validate(resource, KUBERNETES, strict=True)
        return
    for pod in pods(resource):
        checked = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": pod["spec"]}
        kubernetes_validate.validate(checked, KUBERNETES, strict=True)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "service"}}
    kubernetes_validate.validate(service | {"spec": resource["spec"]["scheduler"]["service"]}, KUBERNETES, strict=True)


@pytest.mark.slow
def test_dask_clusters_are_of_the_operator_s_schema() -> None:
    pytest.importorskip("dask_kubernetes", reason="the operator's schema comes with dask-kubernetes")
    charts = files("dask_kubernetes") / "operator" / "deployment" / "helm"
    text = (charts / "dask-kubernetes-operator" / "crds" / "daskcluster.yaml").read_text()
    schema = yaml.safe_load(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for resource in RESOURCES:
        if resource["kind"] == "DaskCluster":
            jsonschema.validate(resource, schema)


def test_kustomization_names_what_is_there() -> None:
    folder = DEPLOY / "kubernetes"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert {*listed["resources"], "cron-job.yaml"} == {path.name for path in folder.glob("*.yaml")} - {
        "kustomization.yaml"
    }
    images = {f"{image['name']}:{image['newTag']}" for image in listed["images"]}
    assert images == {container["image"].removeprefix(PLACE) for container in CONTAINERS}


def test_the_page_names_files_that_are_there() -> None:
    page = (OPERATIONS / "kubernetes.md").read_text()
    for name in re.findall(r"--filename (?:deploy/kubernetes/)?(\S+\.yaml)", page):
        assert (DEPLOY / "kubernetes" / name).exists()


def test_images_are_pinned() -> None:
    dockerfile = re.findall(r"^(?:FROM |ARG PYTHON_IMAGE=)(\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert dockerfile[1:] == ["${PYTHON_IMAGE}"] * 2  # set when it is built to one with a digest
    images = [container["image"] for container in CONTAINERS]
    images += [re.sub(r"\$\{\w+:-(.+)\}", r"\1", service["image"]) for service in COMPOSE["services"].values()]
    for image in [*images, dockerfile[0]]:
        assert re.search(r":\d+(\.\d+)+(-\w+)*$", image), image


def test_pods_have_no_unneeded_privileges() -> None:
    for pod in PODS:
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
    for container in CONTAINERS:
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]
        assert {"requests", "limits"} <= container["resources"].keys()


def test_compose_services_have_no_unneeded_privileges() -> None:
    for service in COMPOSE["services"].values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "/tmp" in [*service["volumes"], *service.get("tmpfs", [])]


def test_whoever_reaches_prefect_s_server_or_dask_s_scheduler_needs_a_password_or_a_key() -> None:
    services = COMPOSE["services"]
    password = services["prefect"]["environment"]["PREFECT_SERVER_API_AUTH_STRING"]
    for name, service in services.items():
        settings = service["environment"]
        if "PREFECT_API_URL" in settings:
            assert settings["PREFECT_API_AUTH_STRING"] == password
        if name in ("scheduler", "dask-worker", "worker"):
            assert settings["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "true"
            for part in ("CA_FILE", "SCHEDULER__CERT", "WORKER__CERT", "CLIENT__CERT"):
                (secret,) = service["secrets"]
                assert settings[f"DASK_DISTRIBUTED__COMM__TLS__{part}"] == f"/run/secrets/{secret}"
                assert secret in COMPOSE["secrets"]
    kept = {}
    for container in CONTAINERS:
        kept |= {entry["name"]: entry.get("valueFrom") for entry in container.get("env", []) if "AUTH" in entry["name"]}
        assert ("PREFECT_API_URL" in str(container.get("env"))) == (
            "PREFECT_API_AUTH_STRING" in str(container.get("env"))
        )
    assert kept.keys() == {"PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"}
    assert kept["PREFECT_API_AUTH_STRING"] == kept["PREFECT_SERVER_API_AUTH_STRING"] is not None


def test_resources_refer_to_existing_names() -> None:
    labels = [pod["metadata"]["labels"] for pod in PODS]

    def chosen(selector: dict[str, str]) -> bool:
        return any(selector.items() <= found.items() for found in labels)

    for resource in RESOURCES:
        spec = resource.get("spec", {})
        if resource["kind"] == "Service":
            assert chosen(spec["selector"])
        if resource["kind"] == "NetworkPolicy":
            for rule in spec.get("ingress", []):
                for peer in rule["from"]:
                    assert "podSelector" not in peer or chosen(peer["podSelector"]["matchLabels"])
            assert not spec["podSelector"] or chosen(spec["podSelector"]["matchLabels"])
        for pod in pods(resource):
            claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
            volumes = pod["spec"].get("volumes", [])
            of_claims = [volume["persistentVolumeClaim"] for volume in volumes if volume.get("emptyDir") != {}]
            assert {claim["claimName"] for claim in of_claims} <= names("PersistentVolumeClaim")
            mounts = {m["name"] for c in pod["spec"]["containers"] for m in c.get("volumeMounts", [])}
            assert mounts == {volume["name"] for volume in volumes} | claims


def test_compose_services_wait_for_what_can_be_waited_for() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        for name, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert "healthcheck" in services[name]
            assert set(services[name]["networks"]) & set(service["networks"])
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")
    assert {network for service in services.values() for network in service["networks"]} == COMPOSE["networks"].keys()


def environments() -> Iterator[tuple[str, str | None]]:
    """(name, value as it is written) of every environment variable that is set; None where it is a secret's."""
    for service in COMPOSE["services"].values():
        yield from service.get("environment", {}).items()
    for container in CONTAINERS:
        for entry in container.get("env", []):
            assert ("value" in entry) != ("valueFrom" in entry)
            yield entry["name"], entry.get("value")
    yield from re.findall(r"^(?:ENV|   ) ([A-Z_]+)=(\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)


def test_environments_are_known_and_hold_no_secret() -> None:
    settings = yaml.safe_load(Path(distributed.__file__).with_name("distributed.yaml").read_text())
    threads = settings["distributed"]["nanny"]["pre-spawn-environ"].keys() | {"NUMBA_NUM_THREADS"}
    for name, value in environments():
        if name.startswith("PREFECT_"):
            assert hasattr(prefect.settings, name), name
        elif name.startswith("DASK_"):
            where: Any = settings
            for key in name.removeprefix("DASK_").lower().split("__"):
                where = where[key.replace("_", "-")]
        else:
            assert name in OTHERS | threads, name
        if SECRET.search(name):
            assert value is None or value.startswith("${"), name


def commands() -> Iterator[tuple[str, ...]]:
    """Every command of ours or of what we install, as it is started."""
    for service in COMPOSE["services"].values():
        if "sparseoco" in service["image"]:
            yield tuple(service["command"])
    for container in CONTAINERS:
        if "sparseoco" in container["image"]:
            yield tuple(container["args"])


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(commands())), ids=" ".join)
def test_commands_exist_with_their_options(command: tuple[str, ...]) -> None:
    program = Path(sys.executable).with_name(command[0])
    words = command[1:3] if command[0] == "prefect" else command[1:2]
    shown = subprocess.run([program, *words, "--help"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    for option in (word for word in command if word.startswith("--")):
        assert re.search(rf"{option}\b", shown.stdout), option


def test_programs_of_commands_are_installed_by_the_image() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    extras = re.findall(r'"\.\[([\w,]+)\]"', dockerfile)[0].split(",")
    assert set(extras) <= PROJECT["optional-dependencies"].keys()
    assert "--constraint deploy/constraints.txt" in dockerfile
    assert re.findall(r"^USER (\S+)", dockerfile, re.MULTILINE) == ["1000"]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE)
    assert {"data", "flows"} <= set(copied)
    for source in copied:
        for name in source.split():
            assert (ROOT / name).exists()
            ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
            assert f"!{name}" in ignored
    assert {command[0] for command in commands()} <= {"dask", "prefect", "sparseoco"}


def test_what_builds_the_package_is_pinned_as_all_else_is() -> None:
    (builder,) = PYPROJECT["build-system"]["requires"]  # for which pip asks no constraints
    assert "==" in builder
    assert builder in (DEPLOY / "constraints.txt").read_text().splitlines()


# ----------------------------------------------------------------------------------------------------------------------
# The example of a nightly run is a run file, and what its page says of it holds.


def test_the_example_is_a_run_file() -> None:
    run = load_run_file(DEPLOY / "nightly.toml")
    assert run.ingest.vocabulary == "extend"
    assert all(find_algorithm(name).driver == "stream" for name in run.search.algorithms)
    assert sum("change:" in line for line in (DEPLOY / "nightly.toml").read_text().splitlines()) == 3
