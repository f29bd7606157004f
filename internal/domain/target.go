package domain

// Target names what an instance must offer to run the job: a handler, or a script language.
func (s *JobSpec) Target() string {
	if s.Script != nil {
		return ScriptTarget(s.Script.Language)
	}
	return s.Handler
}

// ScriptTarget is the target of scripts in a language. Handler names cannot collide with it, as an instance
// reports handlers and languages apart.
func ScriptTarget(language string) string { return "script:" + language }
