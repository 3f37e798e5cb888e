// Package s3err is the vocabulary of refusals on the wire: every S3 error code
// that the gateway speaks, its HTTP status and its default text, in one table.
//
// Clients act on codes and statuses, so these are part of the protocol and not
// of any handler: a handler names a Code and adds what only it knows (the
// fields of the XML document, the cause for the log). The package knows
// nothing of XML or of requests, so that everything below the handlers
// (signatures, checksums) can refuse in the same words.
package s3err

import (
	"errors"
	"net/http"
)

// Code is an S3 error code as it stands in the Code element of an error
// document. It is an error only so that errors.Is(err, s3err.NoSuchKey) works;
// return New(code), never a bare Code.
type Code string

// Error gives the code itself.
func (c Code) Error() string { return string(c) }

// Status is the HTTP status of c; 500 for a code that is not in the table.
func (c Code) Status() int {
	if e, ok := table[c]; ok {
		return e.status
	}
	return http.StatusInternalServerError
}

// Message is the default text of c.
func (c Code) Message() string {
	if e, ok := table[c]; ok {
		return e.message
	}
	return table[InternalError].message
}

// Field is an element that an error document carries beside Code, Message,
// Resource and RequestId.
type Field struct {
	Name, Value string
}

// Error is a refusal ready for the wire. New makes one; it belongs to its
// maker, who may change it until it is returned. It never holds a secret: its
// text, fields and cause may all be logged, and all but the cause are sent.
type Error struct {
	Code    Code
	Message string
	Status  int
	Fields  []Field // in the order of the document
	Cause   error   // for the log only, never sent
}

// New gives a fresh Error with the status and the text of the table.
func New(code Code) *Error {
	return &Error{Code: code, Message: code.Message(), Status: code.Status()}
}

// With appends a field and returns e. The value may come from the client: the
// writer of the document escapes it.
func (e *Error) With(name, value string) *Error {
	e.Fields = append(e.Fields, Field{Name: name, Value: value})
	return e
}

// WithMessage replaces the text and returns e.
func (e *Error) WithMessage(message string) *Error {
	e.Message = message
	return e
}

// Wrap sets the cause, for the log, and returns e.
func (e *Error) Wrap(cause error) *Error {
	e.Cause = cause
	return e
}

// Field gives the value of the first field of that name, "" if there is none.
func (e *Error) Field(name string) string {
	for _, f := range e.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Error gives code, text and cause.
func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is e's Code, or an Error of the same Code.
func (e *Error) Is(target error) bool {
	switch t := target.(type) {
	case Code:
		return t == e.Code
	case *Error:
		return t != nil && t.Code == e.Code
	}
	return false
}

// As gives the Error in err's chain, or an InternalError that wraps err, so
// that whoever answers always has a document to send. It gives nil for nil.
func As(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if c, ok := errors.AsType[Code](err); ok {
		return New(c).Wrap(err)
	}
	return New(InternalError).Wrap(err)
}
