package s3err

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"strconv"
	"strings"
	"testing"
)

// constants reads the codes that table.go declares from its source.
func constants(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "table.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Code" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found[spec.Names[0].Name] = text
		return true
	})
	return found
}

func TestTableIsTotal(t *testing.T) {
	found := constants(t)
	if len(found) != len(table) || len(found) < 80 {
		t.Errorf("%d constants, %d rows", len(found), len(table))
	}
	names := map[string]string{}
	for name, text := range found {
		if other, twice := names[text]; twice {
			t.Errorf("%s and %s are both %q", name, other, text)
		}
		names[text] = name
		e, ok := table[Code(text)]
		if !ok {
			t.Errorf("%s has no row", name)
			continue
		}
		if e.status < 400 && Code(text) != NotModified || e.status > 599 {
			t.Errorf("%s: status %d", name, e.status)
		}
		if strings.TrimSpace(e.message) == "" {
			t.Errorf("%s: no text", name)
		}
	}
}

// TestWellKnown pins what clients act on.
func TestWellKnown(t *testing.T) {
	for code, status := range map[Code]int{
		"NoSuchKey": 404, "NoSuchBucket": 404, "NoSuchUpload": 404, "NoSuchVersion": 404, "NoSuchTagSet": 404, "NoSuchBucketPolicy": 404,
		"AccessDenied": 403, "SignatureDoesNotMatch": 403, "InvalidAccessKeyId": 403, "RequestTimeTooSkewed": 403, "InvalidObjectState": 403,
		"AuthorizationHeaderMalformed": 400, "AuthorizationQueryParametersError": 400, "BadDigest": 400, "InvalidDigest": 400, "IncompleteBody": 400,
		"EntityTooSmall": 400, "EntityTooLarge": 400, "InvalidPart": 400, "InvalidPartOrder": 400, "MalformedXML": 400, "MalformedPolicy": 400,
		"InvalidBucketName": 400, "KeyTooLongError": 400, "MetadataTooLarge": 400, "InvalidArgument": 400, "InvalidRequest": 400,
		"XAmzContentSHA256Mismatch": 400, "MalformedTrailerError": 400, "BucketNotEmpty": 409, "BucketAlreadyOwnedByYou": 409, "BucketAlreadyExists": 409,
		"InvalidBucketState": 409, "OperationAborted": 409, "ConditionalRequestConflict": 409, "MissingContentLength": 411, "PreconditionFailed": 412,
		"InvalidRange": 416, "InternalError": 500, "NotImplemented": 501, "ServiceUnavailable": 503, "SlowDown": 503, "MethodNotAllowed": 405,
		"NoSuchCORSConfiguration": 404, "NoSuchLifecycleConfiguration": 404, "ObjectLockConfigurationNotFoundError": 404,
		"ServerSideEncryptionConfigurationNotFoundError": 404, "ReplicationConfigurationNotFoundError": 404, "OwnershipControlsNotFoundError": 404,
		"NoSuchPublicAccessBlockConfiguration": 404, "NoSuchWebsiteConfiguration": 404, "NoSuchObjectLockConfiguration": 404,
	} {
		if _, ok := table[code]; !ok || code.Status() != status {
			t.Errorf("%s: %d, want %d", code, code.Status(), status)
		}
	}
}

func TestError(t *testing.T) {
	e := New(NoSuchKey).With("Key", "a").With("BucketName", "b").Wrap(io.ErrUnexpectedEOF)
	if e.Status != 404 || e.Message != "The specified key does not exist." || e.Field("Key") != "a" || e.Field("BucketName") != "b" || e.Field("x") != "" {
		t.Errorf("%+v", e)
	}
	if New(NoSuchKey).Fields != nil || New(NoSuchKey).Cause != nil {
		t.Error("errors share what was added to one of them")
	}
	wrapped := fmt.Errorf("get: %w", e)
	if !errors.Is(wrapped, NoSuchKey) || errors.Is(wrapped, NoSuchBucket) || !errors.Is(wrapped, New(NoSuchKey)) || !errors.Is(wrapped, io.ErrUnexpectedEOF) {
		t.Error("errors.Is")
	}
	if got := e.Error(); got != "NoSuchKey: The specified key does not exist.: unexpected EOF" {
		t.Errorf("%q", got)
	}
	if e := New(AccessDenied).WithMessage("no"); e.Message != "no" || e.Error() != "AccessDenied: no" {
		t.Errorf("%v", e)
	}
}

func TestAs(t *testing.T) {
	if As(nil) != nil {
		t.Error("an error from nothing")
	}
	e := New(SlowDown)
	if got := As(fmt.Errorf("x: %w", e)); got != e {
		t.Errorf("%v", got)
	}
	if got := As(fmt.Errorf("x: %w", NoSuchKey)); got.Code != NoSuchKey || got.Status != 404 {
		t.Errorf("%v", got)
	}
	got := As(io.ErrClosedPipe)
	if got.Code != InternalError || got.Status != 500 || !errors.Is(got, io.ErrClosedPipe) || strings.Contains(got.Message, "pipe") {
		t.Errorf("%v", got)
	}
	if unknown := New("Whatever"); unknown.Status != 500 || unknown.Message == "" {
		t.Errorf("%v", unknown)
	}
}
