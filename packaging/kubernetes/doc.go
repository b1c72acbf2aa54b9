// Package kubernetes tries what Headgate does for Kubernetes against the real thing: a kube-apiserver
// and an etcd, which it builds. It is a module of its own, as they bring two hundred others;
// `make kubernetes` runs it.
package kubernetes
