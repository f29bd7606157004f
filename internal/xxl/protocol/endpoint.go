package protocol

import "strings"

// Endpoint is a path that executors call at an admin.
type Endpoint string

// The endpoints of executors.
const (
	EndpointRegister Endpoint = "registry"
	EndpointRemove   Endpoint = "registryRemove"
	EndpointCallback Endpoint = "callback"
)

// EndpointOf returns the endpoint of a request's path: below /api, as from 3.4.1, or below another path, such as /xxl-job-admin/api. It is
// false for every other path.
func EndpointOf(path string) (Endpoint, bool) {
	path = strings.TrimRight(path, "/")
	for strings.Contains(path, "//") { // http://host:8080//api/registry, if the configured address ends with a slash
		path = strings.ReplaceAll(path, "//", "/")
	}
	before, name, found := strings.Cut(path, "/api/")
	if !found || strings.Count(before, "/") > 1 {
		return "", false
	}
	switch e := Endpoint(name); e {
	case EndpointRegister, EndpointRemove, EndpointCallback:
		return e, true
	}
	return "", false
}

// IsAdminAPI reports whether a path belongs to the admin's API for people and programs, which this protocol does not include.
func IsAdminAPI(path string) bool {
	path = "/" + strings.TrimLeft(strings.TrimPrefix(path, "/xxl-job-admin"), "/")
	for _, p := range []string{"/login", "/auth", "/logout", "/jobinfo", "/jobgroup", "/joblog", "/jobcode", "/user", "/chartInfo", "/api/addJob", "/api/updateJob",
		"/api/removeJob", "/api/startJob", "/api/stopJob", "/api/triggerJob"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// Kind is the implementation of an executor, as far as its requests show it.
type Kind string

// The implementations. An executor behind a proxy that changes headers is KindOther.
const (
	KindJava   Kind = "java"   // xxl-job-core
	KindGo     Kind = "go"     // executor-go
	KindPython Kind = "python" // pyxxl
	KindOther  Kind = "other"
)

// KindOf returns the implementation by the header User-Agent of an executor's requests.
func KindOf(userAgent string) Kind {
	switch {
	case strings.HasPrefix(userAgent, "Java/"), strings.HasPrefix(userAgent, "Java-http-client/"):
		return KindJava
	case strings.HasPrefix(userAgent, "Go-http-client/"):
		return KindGo
	case strings.HasPrefix(userAgent, "Python/"):
		return KindPython
	}
	return KindOther
}
