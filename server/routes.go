package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"ringfence/server/s3err"
)

// handler serves one operation. Before it writes the header it may return an
// error, which becomes the answer; after that an error cuts the connection.
type handler func(s *Server, w *response, r *request) error

// operation is a row of the table: one operation of the S3 protocol.
type operation struct {
	name   string
	method string
	scope  scope
	// query are the parameters that make a request this operation: "uploads",
	// or "list-type=2" where the value decides.
	query []string
	// header must be present, "" for none.
	header string
	// params are the ordinary parameters that the operation may carry.
	params []string
	// open operations are for strangers: they aren't authenticated, have no body
	// and may carry any parameter.
	open bool
	// handle is nil for an operation that Ringfence doesn't have.
	handle handler
}

// is reports whether a request is op, sub-resources and header considered.
func (op *operation) is(query url.Values, header http.Header) bool {
	for _, q := range op.query {
		name, value, valued := strings.Cut(q, "=")
		got, ok := query[name]
		if !ok || valued && (len(got) != 1 || got[0] != value) {
			return false
		}
	}
	return op.header == "" || named(query, header, op.header)
}

// named reports whether a request carries a header, or a query parameter in
// its place as presigned URLs may.
func named(query url.Values, header http.Header, name string) bool {
	if _, ok := header[http.CanonicalHeaderKey(name)]; ok {
		return true
	}
	for q := range query {
		if strings.EqualFold(q, name) {
			return true
		}
	}
	return false
}

// allows reports whether op may carry a query parameter. Names that begin with
// x- are for the access log or for signatures (AWS ignores them, too).
func (op *operation) allows(param string) bool {
	if op.open {
		return true
	}
	if len(param) >= 2 && (param[0] == 'x' || param[0] == 'X') && param[1] == '-' {
		return true
	}
	for _, q := range op.query {
		if name, _, _ := strings.Cut(q, "="); name == param {
			return true
		}
	}
	return slices.Contains(op.params, param)
}

// routes finds the operation of a request. It never changes.
type routes struct {
	all []*operation
	// by scope and method, those with the most conditions first.
	by [onObject + 1]map[string][]*operation
}

func newRoutes(table []operation) routes {
	var rt routes
	for i := range rt.by {
		rt.by[i] = make(map[string][]*operation)
	}
	for i := range table {
		op := &table[i]
		rt.all = append(rt.all, op)
		rt.by[op.scope][op.method] = append(rt.by[op.scope][op.method], op)
	}
	for i := range rt.by {
		for _, ops := range rt.by[i] {
			slices.SortStableFunc(ops, func(a, b *operation) int { return b.conditions() - a.conditions() })
		}
	}
	return rt
}

// conditions counts what makes op special; a query value counts for more than
// its name alone.
func (op *operation) conditions() int {
	n := 0
	for _, q := range op.query {
		n += 2 + strings.Count(q, "=")
	}
	if op.header != "" {
		n++
	}
	return n
}

// find gives the operation of a request. The error says why it can't be served;
// with it, the operation may be nil.
func (rt *routes) find(sc scope, method string, query url.Values, header http.Header) (*operation, error) {
	ops, ok := rt.by[sc][method]
	if !ok {
		return nil, s3err.New(s3err.MethodNotAllowed).With("Method", method)
	}
	for _, op := range ops {
		if !op.is(query, header) {
			continue
		}
		return op, op.check(query)
	}
	// Every method of the table that has an operation without conditions is
	// done by now: this one has none, so a sub-resource is missing or unknown.
	if len(query) > 0 {
		return nil, s3err.New(s3err.NotImplemented).WithMessage("The sub-resource is not implemented.")
	}
	return nil, s3err.New(s3err.MethodNotAllowed).With("Method", method)
}

// check judges the query of a request that op was found for.
func (op *operation) check(query url.Values) error {
	for name, values := range query {
		if !op.allows(name) {
			return s3err.New(s3err.NotImplemented).
				WithMessage("A query parameter you provided implies functionality that is not implemented.").
				With("ParameterName", name)
		}
		if len(values) > 1 {
			return s3err.New(s3err.InvalidArgument).WithMessage("A query parameter was given more than once.").
				With("ArgumentName", name)
		}
	}
	if op.handle == nil {
		return s3err.New(s3err.NotImplemented).WithMessage(op.name + " is not implemented.")
	}
	return nil
}
