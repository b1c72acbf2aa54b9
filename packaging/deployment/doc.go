// Package deployment tries what is deployed without being installed: the chart of Helm, the
// services of compose.yaml, the Dockerfile, and the alerts of Prometheus. It is a module of its
// own, as Helm brings a hundred others; `make deployment` runs it.
package deployment
