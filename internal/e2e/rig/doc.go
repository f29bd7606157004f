// Package rig is what tests of the whole build their world from: processes, which are the test binary itself started
// again as something else; links between them that can be broken; a cluster of NATS servers. TestMain of a package
// that starts NATS servers calls NATSServer when EnvAs says "nats".
//
// Only tests import it, so that it may use package testing, and ends the test where it cannot do what it was asked to.
package rig
