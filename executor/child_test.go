package executor

func childMain(dir string) {}
