// Package helm contains tests of the chart in the directory belfry. It is a separate module, outside of go.work, so that the
// libraries of Kubernetes influence no other build.
//
//   - render_test.go renders the templates, with the functions of Helm that the chart uses. Helm's own library is not used,
//     because it needs as much time to build as the rest of the gate's tests; `.ci/long chart` compares with Helm.
//   - chart_test.go decodes the objects of many values strictly with the types of Kubernetes and of the Prometheus operator, and checks
//     the references between them.
//   - values_test.go checks values.yaml, its schema, and README.md of the chart, which is generated from both.
package helm
