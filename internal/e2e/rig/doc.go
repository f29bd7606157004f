// Package rig provides the parts of end-to-end tests: processes, which are the test binary started again in another role; proxies
// that break links between them; a cluster of NATS servers. If a package starts NATS servers, its TestMain calls NATSServer when
// EnvAs is "nats".
//
// Only tests import the package. Therefore it uses package testing, and fails the test on an error.
package rig
