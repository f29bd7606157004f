package protocol

import "strings"

// Text is the meaning of a text that executors answer. The gateway decides by it, because executors have one code for all errors.
type Text string

// The meanings of the texts of answers. Each is said by an executor that did not carry out the call.
const (
	TextOther     Text = ""           // not known
	TextBusy      Text = "busy"       // the executor runs the job, or its queue is full
	TextNoHandler Text = "no_handler" // the executor does not have the handler
	TextNoGlue    Text = "no_glue"    // the executor does not run scripts of this glue type
	TextToken     Text = "token"      // the access token is wrong
	TextNoPath    Text = "no_path"    // nothing serves the path
	TextInvalid   Text = "invalid"    // the executor, or a proxy, does not accept such a request
	TextScript    Text = "script"     // a Groovy script cannot be compiled
	textRepeated  Text = "repeated"   // the executor has the log id in its queue: the run is taken
)

// pattern matches a text by its beginning, a part and its end.
type pattern struct {
	begin, part, end string
	means            Text
}

// answers are the texts with which executors refuse a call. Java is xxl-job-core 2.2 to 3.4, Go is executor-go 1.2, Python is pyxxl 0.4.
var answers = []pattern{
	{begin: "job handler [", end: "] not found.", means: TextNoHandler},          // Java
	{begin: "handler ", end: " not found.", means: TextNoHandler},                // Python
	{begin: "Task not registered", means: TextNoHandler},                         // Go
	{begin: "glueType[", end: "] is not valid.", means: TextNoGlue},              // Java
	{begin: "block strategy effect", means: TextBusy},                            // Java
	{begin: "job thread is running", means: TextBusy},                            // Java, idleBeat
	{begin: "There are tasks running", means: TextBusy},                          // Go
	{begin: "Task is busy", means: TextBusy},                                     // Go, idleBeat
	{begin: "The same job [", means: TextBusy},                                   // Python
	{begin: "Job ", part: " is SERIAL, queue length more than", means: TextBusy}, // Python
	{begin: "job ", end: " is running.", means: TextBusy},                        // Python, idleBeat
	{begin: "repeate trigger job", means: textRepeated},                          // Java up to 3.3
	{begin: "repeat trigger job", means: textRepeated},                           // Java from 3.4
	{begin: "The access token is wrong", means: TextToken},                       // Java
	{begin: "invalid request, uri-mapping", means: TextNoPath},                   // Java
	{begin: "invalid request, HttpMethod not support", means: TextInvalid},       // Java
	{begin: "params err", means: TextInvalid},                                    // Go
}

func (p pattern) matches(s string) bool {
	return strings.HasPrefix(s, p.begin) && strings.Contains(s, p.part) && strings.HasSuffix(s, p.end)
}

// textOf returns the meaning of an answer's text.
func textOf(message string) Text {
	message = strings.TrimSpace(message)
	for _, p := range answers {
		if p.matches(message) {
			return p.means
		}
	}
	return TextOther
}

// The ends of messages with which Java executors report that a kill, a changed script or their own shutdown ended a run.
const (
	killedRunning  = "[job running, killed]"
	notExecuted    = "[job not executed," // its rest differs
	pythonKilled   = "CancelledError"
	pythonTimedOut = "TimeoutError"
)

// noLog are answers to /log that executors send instead of lines.
var noLog = []string{"readLog fail, logFile not exists", "readLog fail, logFile not found", "No such logid logs."}
