// Package sdktest tests the SDK, module executor, against a real NATS server, by its exported names and the wire. The tests are
// not in that module, because its users would then have the server and its dependencies in their build lists.
package sdktest
