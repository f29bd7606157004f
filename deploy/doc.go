// Package deploy holds no code but tests of the files beside it: the image, the compose file, the systemd units, the
// NATS servers' configuration, the alert rules and the dashboard. No Docker engine is needed.
//
//   - image_test.go runs the build command of the Dockerfile as it stands, and looks at the binary.
//   - compose_test.go reads compose.yaml with compose's own parser, and has the belfry command line judge what its
//     services run.
//   - nats_test.go starts what compose.yaml describes as processes of this machine: three NATS servers from their
//     configuration, and the image's binary in each role with the services' commands and environment.
//   - systemd_test.go has systemd judge the units, and the belfry command line what they start.
//   - metrics_test.go compares alert rules and dashboard with the metrics in the code.
//
// What they cannot show: that the images can be pulled, and what Docker makes of the compose file.
package deploy
