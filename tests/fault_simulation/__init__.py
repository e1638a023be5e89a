"""A cluster and its schedulers in one process, under a virtual clock, from one seed.

As FoundationDB and TigerBeetle test: the API server, controllers, kubelets and two or three
replicas of the scheduler run in one event loop whose clock jumps from event to event. Messages are
delayed, lost, repeated and cut, processes are killed, frozen and restarted, all as one seed says;
an auditor looks at the objects after every step. A seed that fails is replayed, shrunk and kept.
"""
