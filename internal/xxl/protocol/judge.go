package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// judge decides what an HTTP response means. An answer of an executor has the status 200, also if it is an error. Other statuses come from
// proxies, containers and other servers.
func judge(status int, body []byte) (Answer, json.RawMessage) {
	if status != 200 {
		return judgeStatus(status, body), nil
	}
	e, err := decodeReply(body)
	switch {
	case err != nil:
		return Answer{Unknown, TextOther, "the answer cannot be read: " + clip(err.Error())}, nil
	case e.code == CodeOK && e.list:
		return Answer{Unknown, TextOther, "the answer is a list"}, nil
	case e.code == CodeOK:
		return Answer{Outcome: Taken, Message: clip(e.message)}, e.payload
	}
	if e.message == "" {
		e.message = fmt.Sprintf("code %d without a text", e.code)
	}
	return Answer{Refused, textOf(e.message), clip(e.message)}, nil
}

func judgeStatus(status int, body []byte) Answer {
	message := fmt.Sprintf("HTTP status %d: %s", status, Clip(strings.TrimSpace(string(body[:min(len(body), 1<<10)])), 200))
	switch status {
	case 401:
		return Answer{Refused, TextToken, message}
	case 404:
		return Answer{Refused, TextNoPath, message}
	case 405, 413:
		return Answer{Refused, TextInvalid, message}
	default:
		return Answer{Unknown, TextOther, message}
	}
}

// reply is the answer of an executor.
type reply struct {
	code    int
	message string
	payload json.RawMessage // data or content; nil: none
	list    bool            // executor-go answers a failed /run with a list, as in a callback
}

func decodeReply(body []byte) (reply, error) {
	if list := elements(body); len(list) > 0 {
		fields, err := object(list[0])
		if err != nil {
			return reply{}, err
		}
		code, message := codeAndMessage(fields)
		if code == 0 {
			return reply{}, errors.New("it is a list without a code")
		}
		return reply{code: code, message: message, list: true}, nil
	}
	fields, err := object(body)
	if err != nil {
		return reply{}, err
	}
	code, ok := integer(fields["code"])
	if !ok || code <= 0 || code >= 1e6 {
		return reply{}, errors.New("it has no code")
	}
	payload := fields["data"]
	if text(payload) == "" {
		payload = fields["content"]
	}
	return reply{code: int(code), message: text(fields["msg"]), payload: payload}, nil
}

// elements returns the elements of a JSON list, and none of any other value.
func elements(body []byte) []json.RawMessage {
	var list []json.RawMessage
	if body = trim(body); len(body) == 0 || body[0] != '[' || json.Unmarshal(body, &list) != nil {
		return nil
	}
	return list
}

// logPage reads the payload of an answer to /log.
func logPage(payload json.RawMessage, from int) (LogPage, error) {
	if text(payload) == "" {
		return LogPage{Missing: true}, nil
	}
	fields, err := object(payload)
	if err != nil {
		return LogPage{}, err
	}
	content := text(fields["logContent"])
	if slices.ContainsFunc(noLog, func(s string) bool { return strings.HasPrefix(content, s) }) {
		return LogPage{Missing: true}, nil
	}
	page := LogPage{AtEnd: text(fields["isEnd"]) == "true"}
	to, known := integer(fields["toLineNum"])
	if content == "" || known && to > 0 && to < int64(from) { // executor-go sends its only text again and again, as the lines up to 2
		return page, nil
	}
	content = strings.ToValidUTF8(strings.ReplaceAll(content, "\x00", "\ufffd"), "\ufffd")
	page.Lines = strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	for i, line := range page.Lines {
		page.Lines[i] = strings.TrimSuffix(line, "\r")
	}
	return page, nil
}
