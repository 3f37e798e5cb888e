package server

import (
	"context"
	"io"

	"ringfence/erasure"
)

// Buckets is what the server needs of the store for buckets.
type Buckets interface {
	CreateBucket(ctx context.Context, name, region string) (erasure.BucketInfo, error)
	HeadBucket(ctx context.Context, name string) (erasure.BucketInfo, error)
	DeleteBucket(ctx context.Context, name string) error
	// ListBuckets gives at most max buckets whose names start with prefix and
	// come after after, and whether there are more.
	ListBuckets(ctx context.Context, prefix, after string, max int) ([]erasure.BucketInfo, bool, error)
}

// Objects is what the server needs of the store for objects.
type Objects interface {
	Put(ctx context.Context, bucket, key string, in erasure.PutInput) (erasure.ObjectInfo, error)
	Stat(ctx context.Context, bucket, key string, in erasure.GetInput) (erasure.ObjectInfo, error)
	Open(ctx context.Context, bucket, key string, in erasure.GetInput) (Object, error)
	Delete(ctx context.Context, bucket, key string, in erasure.DeleteInput) (erasure.DeleteResult, error)
	Copy(ctx context.Context, in erasure.CopyInput) (erasure.ObjectInfo, error)
	List(ctx context.Context, bucket string, in erasure.ListInput) (erasure.ListPage, error)
}

// Object is an open version of an object; it keeps its bytes while others
// overwrite or delete the key. It belongs to one goroutine.
type Object interface {
	Info() erasure.ObjectInfo
	// Prefetch makes sure that the first bytes of the range can be read, so
	// that a failure can still become an error answer.
	Prefetch(ctx context.Context, off, n int64) error
	// WriteTo writes verified bytes of the range to w. After an error, w has
	// got a prefix of them.
	WriteTo(ctx context.Context, w io.Writer, off, n int64) (int64, error)
	Close() error
}

// Uploads is what the server needs of the store for multipart uploads.
type Uploads interface {
	CreateUpload(ctx context.Context, bucket, key string, in erasure.CreateUploadInput) (erasure.UploadInfo, error)
	PutPart(ctx context.Context, bucket, key, uploadID string, number int, in erasure.PutInput) (erasure.PartInfo, error)
	ListParts(ctx context.Context, bucket, key, uploadID string, after, max int) (erasure.PartPage, error)
	ListUploads(ctx context.Context, bucket string, in erasure.UploadListInput) (erasure.UploadPage, error)
	CompleteUpload(ctx context.Context, bucket, key, uploadID string, in erasure.CompleteInput) (erasure.ObjectInfo, error)
	AbortUpload(ctx context.Context, bucket, key, uploadID string) error
}

// Store is a store whose Open returns its own type, as *erasure.Store does.
type Store[O Object] interface {
	Put(ctx context.Context, bucket, key string, in erasure.PutInput) (erasure.ObjectInfo, error)
	Stat(ctx context.Context, bucket, key string, in erasure.GetInput) (erasure.ObjectInfo, error)
	Open(ctx context.Context, bucket, key string, in erasure.GetInput) (O, error)
	Delete(ctx context.Context, bucket, key string, in erasure.DeleteInput) (erasure.DeleteResult, error)
	Copy(ctx context.Context, in erasure.CopyInput) (erasure.ObjectInfo, error)
	List(ctx context.Context, bucket string, in erasure.ListInput) (erasure.ListPage, error)
}

// Adapt makes Objects of a store whose Open returns its own type.
func Adapt[O Object](s Store[O]) Objects { return adapter[O]{s} }

type adapter[O Object] struct{ Store[O] }

func (a adapter[O]) Open(ctx context.Context, bucket, key string, in erasure.GetInput) (Object, error) {
	o, err := a.Store.Open(ctx, bucket, key, in)
	if err != nil {
		return nil, err // not o: a nil *T in an interface isn't nil
	}
	return o, nil
}
