// Package deploy contains tests of the files in its directory: the image, the compose file, the systemd units, the
// configuration of the NATS servers, the alert rules and the dashboard. The tests need no Docker engine.
//
//   - image_test.go runs the build command of the Dockerfile, and checks the binary.
//   - compose_test.go reads compose.yaml with compose's parser, and checks the commands of its services with the belfry
//     command line.
//   - nats_test.go starts the services of compose.yaml as processes on this machine: three NATS servers with their
//     configuration, and the image's binary in each role with the services' commands and environment.
//   - systemd_test.go checks the units with systemd, and their commands with the belfry command line.
//   - metrics_test.go compares the alert rules and the dashboard with the metrics in the code.
//
// The tests do not pull images, and do not run the compose file in Docker.
package deploy
