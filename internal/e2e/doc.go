// Package e2e tests Belfry from outside: real processes of every role, a real Postgres and a real NATS server, killed
// with SIGKILL at the worst moments. Each test is named after the promise that it tries; TestScenario… are days as bad as
// they come, told from beginning to end.
//
// There is no binary to build: the test binary starts itself again, and TestMain then runs the belfry command line, or
// an external NATS server with the configuration of deploy/nats. A role may be told to kill or to stop itself at a
// named point of its work (see dispatcher.Config.Trace), so that the moment between two steps can be met every time. Links
// are broken by a proxy of the test's (package rig).
//
// Tests that wait for minutes of the contract to pass leave themselves out under -short. The others and these together
// take some minutes, as six run beside each other. The longest tests are in packages faulttest and freezes.
//
// Random tests print their seed, and take one from E2E_SEED.
//
// No test here asserts how fast the machine is. The promise tests (promise_test.go) hold Belfry to the times of its contract
// (a fire at most 5 s late, a death detected within 15 s), by the database's clock and net of the machine's own stalls. They
// run before all others, one after the other. All other tests wait for as long as it takes.
package e2e
