package layout

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// cited matches the directory and name of a test on docs/xxl-job.md.
var cited = regexp.MustCompile("`([a-z0-9_/.]+) (Test\\w+)`")

// uncited returns the tests that a page names but that do not exist, and the number of tests that it names.
func uncited(page string, files []sourceFile) (missing []string, named int) {
	have := make(map[string]bool)
	for _, f := range files {
		if !f.test {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				have[f.dir+" "+fn.Name.Name] = true
			}
		}
	}
	for _, m := range cited.FindAllStringSubmatch(page, -1) {
		if named++; !have[m[1]+" "+m[2]] {
			missing = append(missing, fmt.Sprintf("%s has no %s", m[1], m[2]))
		}
	}
	return missing, named
}

// TestXXLJobPage checks that the tests that docs/xxl-job.md names exist.
func TestXXLJobPage(t *testing.T) {
	files := repository(t)
	missing, named := uncited(pages(t)["docs/xxl-job.md"], files)
	for _, m := range missing {
		t.Errorf("docs/xxl-job.md: %s", m)
	}
	if named < 60 {
		t.Errorf("docs/xxl-job.md names only %d tests", named)
	}
	if missing, _ := uncited("`internal/layout TestXXLJobPage`, `internal/layout TestNoSuchTest`", files); len(missing) != 1 {
		t.Errorf("one of two tests does not exist, but %d are reported", len(missing))
	}
}
