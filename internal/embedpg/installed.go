package embedpg

import (
	"context"
	"log/slog"
)

// Binaries returns the directory of initdb and postgres that Start uses for a new cluster by default. It downloads them if
// none are installed.
func Binaries(ctx context.Context) (string, error) {
	c := cluster{account: account{mode: asCaller}}
	bin, err := findBinaries(ctx, "", 0, c.downloadDir(), slog.New(slog.DiscardHandler))
	return bin.dir, err
}
