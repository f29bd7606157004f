// Package e2e tests Belfry from outside, with real processes of every role, a real Postgres and a real NATS server. Many tests kill
// processes with SIGKILL at the worst moments. Most tests are named after the promise that they test. Each TestScenario… reproduces an
// incident from beginning to end.
//
// There is no binary to build. The test binary starts itself again, and TestMain then runs the belfry command line, or a NATS server
// with the configuration of deploy/nats. A test can make a role kill or freeze itself at a named point of its work (see
// dispatcher.Config.Trace), and so reliably reaches the moment between two steps. Proxies of package rig break links.
//
// Tests that wait for long timeouts of the contract are skipped under -short. All tests together take some minutes, because six run
// at a time. The longest tests are in packages faulttest and freezes.
//
// Random tests log their seed, and use the seed in E2E_SEED if there is one.
//
// Only the promise tests (promise_test.go and promise_attack_test.go) judge how long something takes. They hold Belfry to the times of its contract (a fire at
// most 5 s late, a death detected within 15 s), by the database's clock and net of the machine's own stalls. They run before all
// other tests, one after the other. All other tests wait as long as necessary.
package e2e
