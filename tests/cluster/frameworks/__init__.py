"""Controllers of frameworks, at fixed versions, on the real control plane.

They make the pods that the scheduler has to group, and their modules have the definitions of their
kinds and their samples. Nothing of them is copied into the project.

Those of Kubeflow and KServe are set up by programs of the suite (`kubeflow`, `mpi`, `kserve`), as
their own listen on all interfaces, with certificates that they keep in /tmp; KServe's without its
webhooks. Nodes of kwok have no GPUs by themselves.
Not to be had from the Go proxy: Kueue 0.14.1, Volcano 1.12.2 and 1.13.0, Grove's operator 0.1.0,
Spark's operator 2.2.0, AIBrix 0.3.0.
"""
