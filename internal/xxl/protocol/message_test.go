package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestDecodeRegistration(t *testing.T) {
	tests := []struct{ body, app, address, fault string }{
		{`{"registryGroup":"EXECUTOR","registryKey":"app","registryValue":"http://10.0.0.5:9999/"}`, "app", "http://10.0.0.5:9999/", ""},
		{" \ufeff" + `{"registryGroup":"EXECUTOR","registryKey":" app ","registryValue":"10.0.0.5:9999","new":{}}`, "app", "10.0.0.5:9999", ""},
		{`{"registryGroup":"ADMIN","registryKey":"app","registryValue":"x"}`, "", "", "registryGroup"},
		{`{"registryGroup":"EXECUTOR","registryKey":"","registryValue":"x"}`, "", "", "xxl.job.executor.appname"},
		{`{"registryGroup":"EXECUTOR","registryKey":"app","registryValue":null}`, "", "", "xxl.job.executor.address"},
		{`[]`, "", "", "JSON object"},
		{`null`, "", "", "JSON object"},
		{``, "", "", "JSON object"},
	}
	for _, tt := range tests {
		r, err := DecodeRegistration([]byte(tt.body))
		if tt.fault == "" && (err != nil || r.App != tt.app || r.Address != tt.address) || tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
			t.Errorf("%s: %+v, %v", tt.body, r, err)
		}
	}
}

func TestAppendReply(t *testing.T) {
	for reply, want := range map[string]string{
		string(AppendReply(nil, CodeOK, "")):         `{"code":200,"content":null,"data":null}`,
		string(AppendReply([]byte(" "), 500, `a"b`)): ` {"code":500,"msg":"a\"b","content":null,"data":null}`,
	} {
		if reply != want {
			t.Errorf("%s, want %s", reply, want)
		}
	}
}

// The names of the fields are those that executors of all versions read.
func TestRunFields(t *testing.T) {
	got, err := json.Marshal(Run{JobID: 7, Handler: "demo", Param: "<p>", Block: BlockSerial, TimeoutS: 3, LogID: 1 << 40, LogTimeMS: 5, GlueType: GlueBean, GlueSource: "s", GlueUpdatedMS: 6, ShardIndex: 1, ShardTotal: 2})
	const want = `{"jobId":7,"executorHandler":"demo","executorParams":"\u003cp\u003e","executorBlockStrategy":"SERIAL_EXECUTION","executorTimeout":3,` +
		`"logId":1099511627776,"logDateTime":5,"glueType":"BEAN","glueSource":"s","glueUpdatetime":6,"broadcastIndex":1,"broadcastTotal":2}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

// read returns what a body of callbacks yields, one line for each item.
func read(r io.Reader) (lines []string) {
	for c, err := range Callbacks(r) {
		var bad *ItemError
		switch {
		case errors.As(err, &bad):
			lines = append(lines, "bad: "+err.Error())
		case err != nil:
			lines = append(lines, "end: "+err.Error())
		default:
			lines = append(lines, fmt.Sprintf("%d %d %s %s", c.LogID, c.Code, c.End, c.Message))
		}
	}
	return lines
}

func TestCallbacks(t *testing.T) {
	const noList = "end: the body must be a JSON array of callbacks, or an object with the array callbackList"
	const short = "end: the body ends before the list of callbacks does"
	tests := []struct {
		name, body string
		want       []string
	}{
		{"array", `[{"logId":1,"logDateTim":5,"handleCode":200,"handleMsg":null},{"logId":2,"handleCode":500,"handleMsg":"no"}]`, []string{"1 200 succeeded ", "2 500 failed no"}},
		{"3.5", ` { "more" : [1,"]"] , "callbackList" : [ {"logId":1,"logDateTime":5,"handleCode":502} ] } `, []string{"1 502 timed_out "}},
		{"2.2", `[{"logId":1,"logDateTim":5,"executeResult":{"code":200,"msg":null,"content":"ok"}}]`, []string{"1 200 succeeded ok"}},
		{"both results", `[{"logId":1,"handleCode":500,"handleMsg":"a","executeResult":{"code":200,"msg":"b"}}]`, []string{"1 500 failed a"}},
		{"numbers in quotes", `[{"logId":"1","handleCode":"200","handleMsg":7},{"logId":2.0,"handleCode":2e2}]`, []string{"1 200 succeeded 7", "2 200 succeeded "}},
		{"a message that is any JSON", `[{"logId":1,"handleCode":200,"handleMsg":{"a":[1, "}]"]}}]`, []string{`1 200 succeeded {"a":[1, "}]"]}`}},
		{"empty", `[]`, nil},
		{"white space and a byte order mark", "\ufeff [ \n ] ", nil},
		{"bad items", `[{"logId":0,"handleCode":200}, {"logId":1}, {"logId":1.5,"handleCode":200}, 7, null, "x", {"logId":NaN,"handleCode":200}, {"logId":9,"handleCode":200}]`,
			[]string{"bad: a callback has no valid logId", "bad: a callback has no valid handleCode", "bad: a callback has no valid logId", "bad: a callback is not a JSON object",
				"bad: a callback is not a JSON object", "bad: a callback is not a JSON object", "bad: a callback is not a JSON object", "9 200 succeeded "}},
		{"unusual texts", `[{"logId":1,"handleCode":500,"handleMsg":"a\u0000b\ud800 \" \\"}]`, []string{"1 500 failed a\ufffdb\ufffd \" \\"}},
		{"killed", `[{"logId":1,"handleCode":500,"handleMsg":"scheduling center kill job. [job running, killed]"},{"logId":2,"handleCode":500,"handleMsg":"CancelledError"},{"logId":3,"handleCode":200,"handleMsg":"[job running, killed]"}]`,
			[]string{"1 500 killed scheduling center kill job. [job running, killed]", "2 500 killed CancelledError", "3 200 succeeded [job running, killed]"}},
		{"not executed", `[{"logId":1,"handleCode":500,"handleMsg":"web container destroy and kill the job. [job not executed, in the job queue, killed.]"}]`,
			[]string{"1 500 not_executed web container destroy and kill the job. [job not executed, in the job queue, killed.]"}},
		{"Python's timeout", `[{"logId":1,"handleCode":500,"handleMsg":"TimeoutError"}]`, []string{"1 500 timed_out TimeoutError"}},
		{"cut in an item", `[{"logId":1,"handleCode":200},{"logId":2,`, []string{"1 200 succeeded ", short}},
		{"cut after an item", `[{"logId":1,"handleCode":200}`, []string{"1 200 succeeded ", short}},
		{"no body", ``, []string{noList}},
		{"one callback", `{"logId":1,"handleCode":200}`, []string{noList}},
		{"a list of another type", `{"callbackList":7}`, []string{noList}},
		{"a cut object", `{"callback`, []string{noList}},
		{"text", `hello`, []string{noList}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := read(strings.NewReader(tt.body)); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%q, want\n%q", got, tt.want)
			}
			if got := read(&oneByOne{tt.body}); !slices.Equal(got, tt.want) {
				t.Errorf("byte by byte, got\n%q, want\n%q", got, tt.want)
			}
		})
	}
}

type oneByOne struct{ rest string }

func (r *oneByOne) Read(b []byte) (int, error) {
	if r.rest == "" {
		return 0, io.EOF
	}
	b[0], r.rest = r.rest[0], r.rest[1:]
	return 1, nil
}

// A long body needs little memory, and a giant message does not stop the callbacks after it.
func TestCallbacksAreBounded(t *testing.T) {
	huge := `{"logId":1,"logDateTim":5,"handleCode":200,"handleMsg":"` + strings.Repeat("x", 3<<20) + `"}`
	noCode := `{"handleMsg":"` + strings.Repeat("y", 3<<20) + `","logId":1,"handleCode":200}`
	got := read(strings.NewReader("[" + huge + "," + noCode + `,{"logId":3,"handleCode":200}]`))
	if len(got) != 3 || got[0] != "1 200 succeeded " || !strings.HasPrefix(got[1], "bad: ") || got[2] != "3 200 succeeded " {
		t.Errorf("%.100q", got)
	}

	item := `{"logId":1,"logDateTim":5,"handleCode":500,"handleMsg":"` + strings.Repeat("x", 200_000) + `"},`
	const items = 100 // 20 MB
	body := io.MultiReader(strings.NewReader("["), &repeated{item: item, left: items}, strings.NewReader(`{"logId":2,"handleCode":200}]`))
	n := 0
	var most uint64
	for c, err := range Callbacks(body) {
		if err != nil || len(c.Message) > MaxText {
			t.Fatalf("item %d: a message of %d bytes, %v", n, len(c.Message), err)
		}
		if n++; n%20 == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	}
	if n != items+1 {
		t.Errorf("%d callbacks, want %d", n, items+1)
	}
	if most > 10<<20 {
		t.Errorf("reading took %d bytes of memory", most)
	}
}

type repeated struct {
	item string
	left int
	rest string
}

func (r *repeated) Read(b []byte) (int, error) {
	if r.rest == "" {
		if r.left == 0 {
			return 0, io.EOF
		}
		r.left--
		r.rest = r.item
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func FuzzCallbacks(f *testing.F) {
	f.Add(`[{"logId":1,"handleCode":200},7]`)
	f.Add(`{"a":"\"]","callbackList":[{"logId":1,"executeResult":{"code":500,"msg":"x"}}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		if a, b := read(strings.NewReader(body)), read(&oneByOne{body}); !slices.Equal(a, b) {
			t.Errorf("read at once %q, byte by byte %q", a, b)
		}
		var list []json.RawMessage
		if json.Unmarshal([]byte(body), &list) == nil && list != nil {
			if got := read(strings.NewReader(body)); len(got) != len(list) {
				t.Errorf("%d items of a list of %d: %q", len(got), len(list), got)
			}
		}
	})
}

func TestParseAddress(t *testing.T) {
	tests := []struct{ address, url, instance string }{
		{"http://10.0.0.5:9999/", "http://10.0.0.5:9999", "10-0-0-5-9999"},
		{"10.0.0.5:9999", "http://10.0.0.5:9999", "10-0-0-5-9999"},
		{" HTTP://10.0.0.5:09999 ", "http://10.0.0.5:9999", "10-0-0-5-9999"},
		{"http://10.0.0.5:80", "http://10.0.0.5", "10-0-0-5-"},
		{"https://Host.Example.:443/A//", "https://host.example/A", "host-example-A-"},
		{"http://[::FFFF:10.0.0.5]:9999", "http://10.0.0.5:9999", "10-0-0-5-9999"},
		{"http://[FD00:0::5]:9999/", "http://[fd00::5]:9999", "fd00--5--9999-"},
		{"http://executor_1:9999", "http://executor_1:9999", "executor-1-9999-"},
	}
	names := make(map[string]string)
	for _, tt := range tests {
		a, err := ParseAddress(tt.address)
		if err != nil || a.String() != tt.url || !strings.HasPrefix(a.Instance(), tt.instance) || strings.Contains(a.Instance(), ".") || len(a.Instance()) > 128 {
			t.Errorf("%s is %s, instance %s, %v", tt.address, a, a.Instance(), err)
		}
		if other, taken := names[a.Instance()]; taken && other != a.String() {
			t.Errorf("%s and %s have the same name", other, a)
		}
		names[a.Instance()] = a.String()
		if again, err := ParseAddress(a.String()); err != nil || again != a {
			t.Errorf("%s is %s when it is read again, %v", a, again, err)
		}
	}
	a, errA := ParseAddress("http://a.b:1")
	b, errB := ParseAddress("http://a-b:1")
	if errA != nil || errB != nil || a.Instance() == b.Instance() {
		t.Errorf("two addresses with the name %s", a.Instance())
	}
	for _, bad := range []string{"", "http://", "ftp://10.0.0.5:21", "file:///etc/passwd", "http://user:password@10.0.0.5:9999", "http://10.0.0.5:9999?x", "http://10.0.0.5:9999/#x", "http://10.0.0.5:0",
		"http://10.0.0.5:65536", "http://10.0.0.5:", "http://[fe80::1%25eth0]:9999", "http://2130706433:9999", "http://0x7f.0x1:9999", "http://10.0.0.256:9999", "http://010.0.0.5:9999", "http://10.0.5:9999",
		"http://a..b:9999", "http://a b:9999", "http://10.0.0.5:9999/../x", "http://10.0.0.5:9999\r\nX: y", "http://ex\u00e4mple:9999", "http://" + strings.Repeat("a", 300)} {
		if a, err := ParseAddress(bad); err == nil {
			t.Errorf("%q is %s", bad, a)
		}
	}
}

func TestEndpointOf(t *testing.T) {
	for path, want := range map[string]Endpoint{
		"/api/registry": EndpointRegister, "/xxl-job-admin/api/registryRemove": EndpointRemove, "/api/callback/": EndpointCallback, "//api/callback": EndpointCallback,
		"/xxl-job-admin//api/registry": EndpointRegister, "/": "", "/api/": "", "/api/registry/x": "", "/a/b/api/registry": "", "/registry": "", "/api/addJob": "",
	} {
		if got, ok := EndpointOf(path); got != want || ok != (want != "") {
			t.Errorf("%s is %q, %v", path, got, ok)
		}
	}
	for path, want := range map[string]bool{"/login": true, "/xxl-job-admin/jobinfo/add": true, "/api/addJob": true, "/api/registry": false, "/": false, "/loginx": false, "/xxl-job-admin/user/loadById": true} {
		if IsAdminAPI(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}
