"""The embedded cluster: a revisioned store behind an HTTP front, controllers, a fake kubelet."""
