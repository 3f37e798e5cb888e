package server

import (
	"context"
	"errors"
	"io"

	"ringfence/erasure"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

// translations says in the protocol's words what happened in the store. The
// first row that an error matches counts. Nothing else translates.
var translations = []struct {
	err  error
	code s3err.Code
}{
	{erasure.ErrNoBucket, s3err.NoSuchBucket},
	{erasure.ErrBucketExists, s3err.BucketAlreadyOwnedByYou}, // there is one owner
	{erasure.ErrBucketNotEmpty, s3err.BucketNotEmpty},
	{erasure.ErrNoObject, s3err.NoSuchKey},
	{erasure.ErrNoVersion, s3err.NoSuchVersion},
	{erasure.ErrNoUpload, s3err.NoSuchUpload},
	{erasure.ErrNoPart, s3err.InvalidPart},
	{erasure.ErrKeyTooLong, s3err.KeyTooLongError},
	{erasure.ErrMetaTooLarge, s3err.MetadataTooLarge},
	{erasure.ErrBodyTooLong, s3err.IncompleteBody},
	{erasure.ErrOverload, s3err.SlowDown},
	{erasure.ErrFull, s3err.InsufficientStorage},
	{erasure.ErrCorrupt, s3err.InternalError},
	{erasure.ErrUnknown, s3err.ServiceUnavailable},
	{erasure.ErrUnavailable, s3err.ServiceUnavailable},
	{s3xml.ErrMalformed, s3err.MalformedXML},
	{io.ErrUnexpectedEOF, s3err.IncompleteBody},
	{context.DeadlineExceeded, s3err.ServiceUnavailable},
	{context.Canceled, s3err.InternalError}, // nobody is there to read it
}

// code gives the refusal in err's chain, or what the table says; an error that
// it doesn't know is an InternalError.
func code(err error) *s3err.Error {
	var e *s3err.Error
	if errors.As(err, &e) {
		return e
	}
	for _, t := range translations {
		if errors.Is(err, t.err) {
			return s3err.New(t.code).Wrap(err)
		}
	}
	return s3err.As(err)
}

// translate adds to code(err) what the request was about.
func (s *Server) translate(r *request, err error) *s3err.Error {
	e := code(err)
	about := func(field, value string) {
		if e.Field(field) == "" {
			e.With(field, value)
		}
	}
	switch e.Code {
	case s3err.NoSuchBucket, s3err.BucketAlreadyOwnedByYou, s3err.BucketNotEmpty:
		about("BucketName", r.target.bucket)
	case s3err.NoSuchKey:
		about("Key", r.target.key)
	case s3err.NoSuchVersion:
		about("Key", r.target.key)
		about("VersionId", r.param("versionId"))
	case s3err.NoSuchUpload:
		about("UploadId", r.param("uploadId"))
	}
	return e
}
