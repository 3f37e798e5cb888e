package server

import (
	"errors"
	"net/http"
	"sync"

	"ringfence/erasure"
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

// maxDeletes is how many keys one DeleteObjects may name.
const maxDeletes = 1000

func (s *Server) deleteObject(w *response, r *request) error {
	precond, err := deleteConditions{
		etag:    r.header.Get("If-Match"),
		modTime: r.header.Get("x-amz-if-match-last-modified-time"),
		size:    r.header.Get("x-amz-if-match-size"),
	}.precond()
	if err != nil {
		return err
	}
	res, err := s.delete(r, r.target.key, erasure.DeleteInput{VersionID: version(r).VersionID, Precond: precond})
	if err != nil {
		return err
	}
	h := w.Header()
	setVersion(h, res.VersionID)
	if res.DeleteMarker {
		h[hdrMarker] = []string{"true"}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// deletion is the outcome for one key of DeleteObjects.
type deletion struct {
	res erasure.DeleteResult
	err error
}

func (s *Server) deleteObjects(w *response, r *request) error {
	doc, err := s.readDocument(r, maxLargeDocument, true)
	if err != nil {
		return err
	}
	req, err := s3xml.ParseDelete(doc)
	if err != nil {
		return err
	}
	if len(req.Objects) == 0 || len(req.Objects) > maxDeletes {
		return s3err.New(s3err.MalformedXML)
	}
	if _, err := s.opt.Buckets.HeadBucket(r.ctx, r.target.bucket); err != nil {
		return err
	}
	done := s.deleteAll(r, req.Objects)
	return w.document(func(x *s3xml.Writer) {
		x.DeleteResult()
		for i := range done {
			o := &req.Objects[i]
			if err := done[i].err; err != nil {
				e := s.translate(r, err)
				x.DeleteError(o.Key, o.VersionID, string(e.Code), e.Message)
				continue
			}
			if req.Quiet {
				continue
			}
			id, marker := o.VersionID, ""
			if done[i].res.DeleteMarker {
				marker = done[i].res.VersionID
			}
			x.Deleted(o.Key, id, done[i].res.DeleteMarker, marker)
		}
		x.EndDeleteResult()
	})
}

// deleteAll deletes with a bounded number of workers, since each deletion waits
// for its commit to be on disk and commits share that. The workers end with it.
func (s *Server) deleteAll(r *request, objects []s3xml.DeleteEntry) []deletion {
	done := make([]deletion, len(objects))
	next := make(chan int, len(objects))
	for i := range objects {
		next <- i
	}
	close(next)
	var workers sync.WaitGroup
	for range min(s.opt.Limits.DeleteWorkers, len(objects)) {
		workers.Go(func() {
			for i := range next {
				done[i].err = safely(func() (err error) {
					done[i].res, err = s.deleteEntry(r, &objects[i])
					return err
				})
			}
		})
	}
	workers.Wait()
	return done
}

func (s *Server) deleteEntry(r *request, o *s3xml.DeleteEntry) (erasure.DeleteResult, error) {
	if err := checkKey(o.Key); err != nil {
		return erasure.DeleteResult{}, err
	}
	precond, err := deleteConditions{etag: o.ETag, modTime: o.ModTime, size: o.Size}.precond()
	if err != nil {
		return erasure.DeleteResult{}, err
	}
	return s.delete(r, o.Key, erasure.DeleteInput{VersionID: versionInput(o.VersionID).VersionID, Precond: precond})
}

// delete deletes one object. One that isn't there is deleted already.
func (s *Server) delete(r *request, key string, in erasure.DeleteInput) (erasure.DeleteResult, error) {
	res, err := s.opt.Objects.Delete(r.ctx, r.target.bucket, key, in)
	if errors.Is(err, erasure.ErrNoObject) || errors.Is(err, erasure.ErrNoVersion) {
		return erasure.DeleteResult{}, nil
	}
	return res, err
}
