package domain

// DeadLetter is a message that could not be taken, and why.
type DeadLetter struct {
	Seq        uint64              `json:"seq"`
	Kind       string              `json:"kind"` // result, log or event
	At         Instant             `json:"at"`
	Subject    string              `json:"subject"` // where it came from
	Error      string              `json:"error"`
	Bytes      int                 `json:"bytes"`                 // of the whole message
	Data       string              `json:"data"`                  // as text, where it is one; empty in lists
	DataBase64 []byte              `json:"data_base64,omitempty"` // what was kept of it
	Headers    map[string][]string `json:"headers,omitempty"`
}
