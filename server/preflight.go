package server

import (
	"net/http"

	"ringfence/server/s3err"
)

// preflight answers browsers that ask whether a page may send a request. No
// bucket has CORS rules yet, so it never may. It needs no signature, as a
// browser can't give one, and it tells nothing about what exists.
func (s *Server) preflight(_ *response, r *request) error {
	if r.header.Get("Origin") == "" {
		return &s3err.Error{Code: "BadRequest", Status: http.StatusBadRequest, Message: "Insufficient information. Origin request header needed."}
	}
	return &s3err.Error{Code: "AccessForbidden", Status: http.StatusForbidden, Message: "CORSResponse: CORS is not enabled for this bucket."}
}
