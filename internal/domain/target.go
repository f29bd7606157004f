package domain

// Target returns what an instance must offer to run the job: a handler or a script language.
func (s *JobSpec) Target() string {
	if s.Script != nil {
		return ScriptTarget(s.Script.Language)
	}
	return s.Handler
}

// ScriptTarget returns the target of scripts in a language. It cannot collide with a handler's name, because instances report
// handlers and languages separately.
func ScriptTarget(language string) string { return "script:" + language }
