"""The steps of a run on Dask. Paths and descriptions travel through the scheduler, nothing larger.

below all        worker (inside a task), corpus (a store laid out for many passes), frequencies (of its features);
                 where Dask is stands in `sparseoco.workers`
a search         search, stage by stage (stages: who goes on), in blocks (block: what they are, the cells of
                 their results) that packing makes and tasks sends and watches; legs is what a worker does with one,
                 course is one under way, states is where it stopped
full passes      passes (losses, slopes, gradient), and optimum on top of them
epoch methods    epochs (any of them, judged epoch by epoch), sampled (caos-erm), coordinates (cao-rcd, over the store
                 by columns that transpose makes), epoch_states; epoch_jobs runs them in a search
a model          training
regret           regret, of tasks in regret_tasks and, for epoch methods, epoch_regret
"""
