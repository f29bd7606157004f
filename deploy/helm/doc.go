// Package helm contains tests of the chart in the directory belfry. It is a separate module, outside of go.work, so that the
// libraries of Kubernetes influence no other build.
//
//   - render_test.go renders the templates, with the functions of Helm that the chart uses. Helm's own library is not used,
//     because it needs as much time to build as the rest of the gate's tests; `.ci/long chart` compares with Helm.
//   - cluster_test.go decodes objects strictly with the types of Kubernetes and of the Prometheus operator, and checks the references between
//     them. chart_test.go does this with many values.
//   - apiserver_test.go applies the same objects to a real API server, in `.ci/long apiserver`.
//   - secret_test.go checks the Secret that make-secret.sh prints.
//   - values_test.go checks values.yaml, its schema, and README.md of the chart, which is generated from both.
package helm
