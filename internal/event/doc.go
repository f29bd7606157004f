// Package event defines events, event triggers and their deliveries, and reads incoming events from HTTP requests and NATS
// messages. It uses neither database nor network. Package match evaluates the triggers.
package event
