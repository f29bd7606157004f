package explain

import (
	"fmt"
	"time"
)

// Disturbed describes a disturbance of the kind clock_step, postgres_away or restored, between two instants.
func Disturbed(language Language, kind string, step time.Duration, from, to string) string {
	if kind == kindPostgresAway {
		return language.Format("Postgres was unavailable from %s to %s", "从 %s 到 %s 数据库不可用", from, to)
	}
	if kind == kindRestored {
		return language.Format("the database was restored to its state of %s, and does not know what ran from then until %s",
			"数据库已恢复到 %s 的状态，不知道从那时到 %s 执行过什么", from, to)
	}
	direction, chinese := "forward", "向前"
	if step < 0 {
		direction, chinese = "back", "向后"
	}
	step = step.Abs()
	if language == Chinese {
		return fmt.Sprintf("数据库时钟%s跳变了 %s（跳变前最后读数 %s，跳变后首个读数 %s）", chinese, ChineseDuration(step), from, to)
	}
	return fmt.Sprintf("the database's clock stepped %s by %s (last reading before the step: %s, first one after it: %s)", direction, step, from, to)
}

const (
	kindPostgresAway = "postgres_away"
	kindRestored     = "restored"
)
