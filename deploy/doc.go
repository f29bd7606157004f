// Package deploy contains tests of the files in its directory: the images, the compose file, the systemd units, the packages, the
// configuration of the NATS servers, the alert rules and the dashboard. The tests need no Docker engine.
//
//   - image_test.go builds the binary of the images, and checks it and the Containerfile.
//   - compose_test.go reads compose.yaml with compose's parser, and checks the commands of its services with the belfry
//     command line.
//   - nats_test.go starts the services of compose.yaml as processes on this machine: three NATS servers with their
//     configuration, and the image's binary in each role with the services' commands and environment.
//   - gateway_test.go runs a job through the gateways among these processes.
//   - containers_linux_test.go runs the services of compose.yaml with podman, for .ci/long compose.
//   - package_test.go checks the configuration and the scripts of the packages.
//   - systemd_test.go checks the units with systemd, and their commands with the belfry command line.
//   - metrics_test.go compares the alert rules and the dashboard with the metrics in the code.
//
// Directory helm has the Helm chart, whose tests are a separate module.
//
// The tests do not build or pull images, do not run the compose file in Docker, and do not build packages. The parts packages, release,
// images and compose of .ci/long build, install and run what a release contains.
package deploy
