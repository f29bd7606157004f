package domain

import "time"

// DeadLetter is a message that could not be processed, with the error.
type DeadLetter struct {
	Seq        uint64              `json:"seq"`
	Kind       string              `json:"kind"`  // result, log, event or heartbeat
	Group      string              `json:"group"` // the name of the event if it is one; empty for letters of older releases
	At         Instant             `json:"at"`
	Subject    string              `json:"subject"` // the NATS subject that it was sent to
	Error      string              `json:"error"`
	Bytes      int                 `json:"bytes"`                 // of the whole message
	Data       string              `json:"data"`                  // if it is text; empty in lists
	DataBase64 []byte              `json:"data_base64,omitempty"` // the stored data if it is not text
	Headers    map[string][]string `json:"headers,omitempty"`
}

// DeadLetterCount says how many dead letters there are.
type DeadLetterCount struct {
	Letters uint64
	Since   time.Time // when the oldest one was stored
	Newest  uint64    // grows with each new letter
}
