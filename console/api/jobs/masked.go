package jobs

import "github.com/belfryhq/belfry/internal/domain"

// Unmask sets the param and the script of a sent spec to the stored ones if they are their masked forms, and refuses other
// texts with a masked secret. stored is nil for a new job.
func Unmask(spec, stored *domain.JobSpec) error {
	var had domain.JobSpec
	if stored != nil {
		had = *stored
	}
	var f domain.Faults
	var err error
	if spec.Param, err = domain.Unmask("param", spec.Param, had.Param); err != nil {
		f.AddAll("param", err)
	}
	if spec.Script != nil {
		code := ""
		if had.Script != nil {
			code = had.Script.Code
		}
		script := *spec.Script
		if script.Code, err = domain.Unmask("script.code", script.Code, code); err != nil {
			f.AddAll("script.code", err)
		}
		spec.Script = &script
	}
	return f.Err("the job is not valid")
}
