//go:build !unix

package handlers

import (
	"context"
	"os/exec"
	"time"
)

// processGroup is a program; this system has no groups that could be signalled.
type processGroup struct{ cmd *exec.Cmd }

func newProcessGroup(cmd *exec.Cmd) processGroup { return processGroup{cmd} }

// terminate ends the program.
func (g processGroup) terminate() error { return g.cmd.Process.Kill() }

// killLater has nothing left to do.
func (g processGroup) killLater(context.Context, time.Duration) (ended func()) { return func() {} }
