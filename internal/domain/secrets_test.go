package domain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestMask(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"2026-11":                        "2026-11",
		"the token is expired":           "the token is expired",
		"mkdir -pv /tmp/x && cp -pr a b": "mkdir -pv /tmp/x && cp -pr a b",
		"docker run -p 8080:80 nginx":    "docker run -p 8080:80 nginx",
		"author=ann keyboard: x signed":  "author=ann keyboard: x signed",
		"http://example.org:8080/a@b":    "http://example.org:8080/a@b",
		"ssh://git@example.org/x":        "ssh://git@example.org/x",
		`{"month": "2026-11", "n": 1.0}`: `{"month": "2026-11", "n": 1.0}`,
		`{"auth":{"kind":"basic"}}`:      `{"auth":{"kind":"basic"}}`,
		`{"db_password":"hunter2","n":12345678901234567890,"url":"<a>"}`: `{"db_password":"•••","n":12345678901234567890,"url":"<a>"}`,
		`{"a":[{"apiKey":"k"},{"apiKey":null}]}`:                         `{"a":[{"apiKey":"•••"},{"apiKey":null}]}`,
		`{"auth":{"token":{"value":"x"}}}`:                               `{"auth":{"token":"•••"}}`,
		`["postgres://u:pw@host/db"]`:                                    `["postgres://u:•••@host/db"]`,
		"password=hunter2 user=ann":                                      "password=••• user=ann",
		`X-Auth-Token: "a b", next`:                                      "X-Auth-Token: •••, next",
		"Authorization: Bearer abc.def":                                  "Authorization: •••",
		"--api-key abc --dry-run":                                        "--api-key ••• --dry-run",
		"https://ann:pw@example.org/x?access_key=k&b=1":                  "https://ann:•••@example.org/x?access_key=•••&b=1",
		`{"password": "cut off`:                                          `{"password": •••`,
		// names
		`{"pwd":"x","MYSQL_PWD":"x","passwd":"x","smtp_pass":"x"}`:                                           `{"MYSQL_PWD":"•••","passwd":"•••","pwd":"•••","smtp_pass":"•••"}`,
		`{"headers":{"Cookie":"a=b; c=d","Set-Cookie":"x","X-Vault-Auth":"x","X-Api-Key":"x","Accept":"y"}}`: `{"headers":{"Accept":"y","Cookie":"•••","Set-Cookie":"•••","X-Api-Key":"•••","X-Vault-Auth":"•••"}}`,
		`{"env":[{"name":"DB_PASSWORD","value":"x"},{"name":"HOME","value":"/"}]}`:                           `{"env":[{"name":"DB_PASSWORD","value":"•••"},{"name":"HOME","value":"/"}]}`,
		`{"a":"{\"password\":\"x y\"}"}`:                                                                     `{"a":"{\"password\":\"•••\"}"}`,
		`{"x":"password=hunter2","x":"fine"}`:                                                                `{"x":"fine"}`,
		"MYSQL_PWD=x PGPASSWORD='a b' psql":                                                                  "MYSQL_PWD=••• PGPASSWORD=••• psql",
		"X-Vault-Auth: abc":                                                                                  "X-Vault-Auth: •••",
		"curl -H 'Cookie: a=b; c=d' https://x.test/":                                                         "curl -H 'Cookie:•••' https://x.test/",
		"Cookie: a=b; c=d\nAccept: */*":                                                                      "Cookie: •••\nAccept: */*",
		"Set-Cookie: s=1; HttpOnly":                                                                          "Set-Cookie: •••",
		"Authorization: Digest username=\"u\", response=\"r\"":                                               "Authorization: •••",
		`pass := "x y"`:                             `pass := "x y"`,
		`db_pass := "x y" // why`:                   "db_pass := ••• // why",
		"password: |\n  line one\n  two\nuser: ann": "password: •••\nuser: ann",
		"<password>x y</password>":                  "<password>•••</password>",
		"CREATE USER u IDENTIFIED BY 'x y';":        "CREATE USER u IDENTIFIED BY •••;",
		"machine h login u password x":              "machine h login u password •••",
		// commands
		"mysql -uroot -phunter2 db":                        "mysql -uroot -p••• db",
		"mysqldump -p'a;b c' db | gzip":                    "mysqldump -p••• db | gzip",
		"/usr/bin/mysql \\\n  -phunter2 \\\n  db":          "/usr/bin/mysql \\\n  -p••• \\\n  db",
		"@@ -1 +1 @@\n-mysql -phunter2 db\n+mysql -p'a b'": "@@ -1 +1 @@\n-mysql -p••• db\n+mysql -p•••",
		"password: correct horse, user: ann":               "password: •••, user: ann",
		"passwd: a,b c\nuser: ann":                         "passwd: •••\nuser: ann",
		"mysql -p db":                                      "mysql -p db",
		"run --password hunter2 --quiet":                   "run --password ••• --quiet",
		"run --password 'a b' x":                           "run --password ••• x",
		"run -password=hunter2 x":                          "run -password=••• x",
		"sshpass -p hunter2 ssh -p 22 h":                   "sshpass -p ••• ssh -p ••• h",
		"curl -u ann:hunter2 https://x.test/":              "curl -u ••• https://x.test/",
		"docker login -u ann -p hunter2":                   "docker login -u ann -p •••",
		`["mysql","-uroot","-phunter2","db"]`:              `["mysql","-uroot","-p•••","db"]`,
		`["sh","-c","mysql -phunter2"]`:                    `["sh","-c","mysql -p•••"]`,
		`["run","--password","hunter2","-p8080"]`:          `["run","--password","•••","-p8080"]`,
		`["curl","-u","ann:hunter2","https://x.test/"]`:    `["curl","-u","•••","https://x.test/"]`,
		`["docker","login","-p","hunter2"]`:                `["docker","login","-p","•••"]`,
		"done\n[\"mysql\",\"-phunter2\"]\n":                "done\n[\"mysql\",\"-p•••\"]\n",
		"done\n{\"name\":\"TOKEN\",\"value\":\"x\"}\r\n1":  "done\n{\"name\":\"TOKEN\",\"value\":\"•••\"}\r\n1",
		// URLs
		"https://x.test/a?sv=1&sig=abc%2F&se=2":                                  "https://x.test/a?sv=1&sig=•••&se=2",
		"https://x.test/a?X-Amz-Signature=abc&X-Amz-Credential=AK/x&Part=1":      "https://x.test/a?X-Amz-Signature=•••&X-Amz-Credential=•••&Part=1",
		"https://x.test/a?signature=abc#x":                                       "https://x.test/a?signature=•••",
		"https://x.test/a?key=abc&b=1":                                           "https://x.test/a?key=•••&b=1",
		"postgres://u:p@ss@host/db":                                              "postgres://u:•••@host/db",
		"https://ghp_0123456789012345678901234567890123456@github.com/x":         "https://•••@github.com/x",
		"u:p@ss@tcp(db:3306)/x":                                                  "u:•••@tcp(db:3306)/x",
		"AccountName=a;AccountKey=abc==":                                         "AccountName=a;AccountKey=•••",
		"https://hooks.slack.com/services/T0/B0/xyz":                             "https://hooks.slack.com/services/•••",
		"-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nx": "-----BEGIN RSA PRIVATE KEY-----•••-----END RSA PRIVATE KEY-----\nx",
	} {
		if got := Mask(text); got != want {
			t.Errorf("%q is shown as\n%q, not\n%q", text, got, want)
		}
		if again := Mask(Mask(text)); strings.Contains(again, "hunter2") || strings.Count(again, Masked) < strings.Count(want, Masked) {
			t.Errorf("%q is shown the second time as %q", text, again)
		}
	}
}

// secretForms are texts with a secret, which is at %s. A secret must not contain the characters of not.
var secretForms = []struct{ form, not string }{
	{"password=%s", `&"'`}, {"pwd = %s", `&"'`}, {"MYSQL_PWD=%s mysql", `&"'`}, {`password: "%s"`, `"\`}, {`passwd='%s'`, `'`},
	{`{"password":"%s"}`, `"\`}, {`{"a":[{"x":{"client_secret":"%s"}}]}`, `"\`}, {`{"headers":{"Cookie":"%s"}}`, `"\`}, {`{"X-Foo-Auth":"%s"}`, `"\`},
	{`["x","--password","%s"]`, `"\`}, {`["mysql","-p%s"]`, `"\`}, {`["mysql","--password=%s"]`, `"\&'`}, {`{"password":"%s`, `"\`},
	{`{"name":"TOKEN","value":"%s"}`, `"\`}, {`{"cmd":"run --token %s"}`, `"\'`}, {`{\"password\":\"%s\"}`, `"\`},
	{"Cookie: %s", ""}, {"Set-Cookie: a=b; c=%s", ""}, {"Authorization: Bearer %s", ""}, {"authorization: %s", ""}, {"curl -H 'Cookie: %s' x", `'`},
	{`curl -H "X-Api-Key: %s" x`, `"'&`}, {"X-Vault-Auth: %s", `"'&`}, {"curl -u ann:%s https://x.test/", `"'\;|&`},
	{"mysql -uroot -p%s db", `"'\;|&`}, {"mysqldump -p'%s' db", `'`}, {"run --password %s", `"'\`}, {"run --api-key '%s'", `'`}, {"-token %s", `"'\`},
	{"sshpass -p %s ssh h", `"'\;|&`}, {"https://ann:%s@x.test/", `/"'<>`}, {"https://x.test/?sig=%s&a=1", `&"'<>#`},
	{"https://x.test/?a=1&signature=%s", `&"'<>#`}, {"https://x.test/?X-Amz-Signature=%s", `&"'<>#`}, {"<password>%s</password>", `<`},
	{"IDENTIFIED BY '%s'", `'`}, {"password: |\n  %s\n", ""}, {"db_pass := \"%s\"", `"\`}, {"AccountKey=%s", `&"'`},
}

// FuzzMask checks that masking never panics, whatever the text, and never shows the secret of a form.
func FuzzMask(f *testing.F) {
	for i := range secretForms {
		f.Add(i, "backing up", "hunter2-Zx9!%$")
		f.Add(i, "# see https://x.test/\necho a", "=:;,()|{}<>/@~`[]?*+^")
	}
	f.Add(0, `{"password":`, "----------")
	f.Fuzz(func(t *testing.T, form int, before, secret string) {
		Mask(before)
		Mask(secret)
		Mask(before + secret)
		s := secretForms[int(uint(form)%uint(len(secretForms)))]
		if len(secret) < 8 || strings.ContainsAny(secret, s.not+"•\\") || strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return
		}
		// The lines before a form contain no quote or name that could include the form.
		before = strings.Map(func(r rune) rune {
			if r == '\n' || r == ' ' || r >= 'a' && r <= 'z' {
				return r
			}
			return -1
		}, before)
		text := fmt.Sprintf(s.form, secret)
		if strings.Contains(strings.ReplaceAll(text, secret, ""), secret) || strings.Contains(before, secret) {
			return
		}
		for _, full := range []string{text, before + "\n" + text, text + "\n" + before} {
			if masked := Mask(full); strings.Contains(masked, secret) {
				t.Errorf("%q is shown as %q", full, masked)
			}
		}
		var v any
		if json.Unmarshal([]byte(text), &v) == nil && !json.Valid([]byte(Mask(text))) {
			t.Errorf("%s is shown as %s, which is not JSON", text, Mask(text))
		}
	})
}

func TestUnmask(t *testing.T) {
	const stored = `{"password":"hunter2","month":"2026-11"}`
	for _, c := range []struct{ sent, stored, want string }{
		{"", stored, ""}, {"new", stored, "new"}, {Mask(stored), stored, stored}, {"• bullets ••", stored, "• bullets ••"},
		{"a ••• of one's own", "some ••• of one's own", "a ••• of one's own"},
		{`{"password":"•••","month":"2026-12"}`, stored, "refused"}, {"password=•••", "", "refused"}, {"•••", stored, "refused"},
	} {
		got, err := Unmask("param", c.sent, c.stored)
		if err != nil {
			if got = "refused"; CodeOf(err) != Invalid || !strings.Contains(fmt.Sprint(err.(*Error).Fields), "param") { //nolint:errorlint // made there
				t.Errorf("%q: %v", c.sent, err)
			}
		}
		if got != c.want {
			t.Errorf("%q over %q gives %q, want %q", c.sent, c.stored, got, c.want)
		}
	}
}
