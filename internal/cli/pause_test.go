package cli

import "testing"

// --all pauses the groups that are not paused, and ends only pauses with its reason.
func TestPauseAllGroups(t *testing.T) {
	newRealConsole(t)
	belfry(t, "", "group", "create", "tools").want(t, ExitDone)
	belfry(t, "", "group", "create", "web").want(t, ExitDone)
	belfry(t, "", "group", "pause", "tools", "--reason", "new disks").want(t, ExitDone)
	belfry(t, "", "group", "pause", "--all", "--reason", "move").want(t, ExitDone, "default paused\nweb paused\n")
	belfry(t, "", "group", "get", "tools").want(t, ExitDone, ": new disks")
	belfry(t, "", "group", "resume", "--all", "--reason", "move").want(t, ExitDone, "default resumed\nweb resumed\n")
	belfry(t, "", "group", "get", "tools").want(t, ExitDone, ": new disks")
	for _, args := range [][]string{
		{"group", "pause", "--reason", "x"}, {"group", "pause", "web", "--all", "--reason", "x"},
		{"group", "resume"}, {"group", "resume", "--all"}, {"group", "resume", "web", "--reason", "x"},
	} {
		belfry(t, "", args...).want(t, ExitUsage)
	}
}

func TestPauseJobs(t *testing.T) {
	newRealConsole(t)
	belfry(t, reportYAML, "job", "apply", "-f", "-").want(t, ExitDone)
	belfry(t, "", "job", "pause", "default/report", "--reason", "new disks", "--for", "2h").want(t, ExitDone, "default/report paused\n")
	belfry(t, "", "job", "get", "default/report").want(t, ExitDone, "It is paused from ", " by admin: new disks")
	printed := belfry(t, "", "job", "get", "default/report", "-o", "yaml")
	printed.want(t, ExitDone, "pause_reason: new disks")
	belfry(t, printed.stdout, "job", "apply", "-f", "-").want(t, ExitDone, "unchanged  default/report")
	belfry(t, "", "job", "resume", "default/report").want(t, ExitDone, "default/report resumed\n")
	belfry(t, "", "job", "resume", "default/report").want(t, ExitFailed)
	for _, args := range [][]string{
		{"job", "pause", "default/report"}, {"job", "pause", "--reason", "x"}, {"job", "pause", "default/report", "--reason", "x", "--for", "1h", "--until", "2099-01-01T00:00:00Z"},
	} {
		belfry(t, "", args...).want(t, ExitUsage)
	}
}
