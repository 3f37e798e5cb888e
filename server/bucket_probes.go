package server

import (
	"ringfence/server/s3err"
	"ringfence/server/s3xml"
)

// bucketProbes are the reads of settings that no bucket of Ringfence has yet.
// Clients send them to find out what a bucket can do, and the true answer is
// the one of a fresh bucket: an empty document, or that there is none.
func bucketProbes() []operation {
	probe := func(name, query string, handle handler) operation {
		return operation{name: name, method: get, scope: onBucket, query: []string{query}, handle: handle}
	}
	list := func(name, query, root string) operation {
		op := probe(name, query, s3Answer(func(w *s3xml.Writer, s *Server) { w.Single(root, "IsTruncated", "false") }))
		op.params = []string{"continuation-token"}
		return op
	}
	return []operation{
		probe("GetBucketAccelerateConfiguration", "accelerate", empty("AccelerateConfiguration")),
		probe("GetBucketAcl", "acl", s3Answer(func(w *s3xml.Writer, s *Server) { w.OwnerACL(s.opt.Owner) })),
		probe("GetBucketCors", "cors", none(s3err.NoSuchCORSConfiguration)),
		probe("GetBucketEncryption", "encryption", none(s3err.ServerSideEncryptionNotFound)),
		probe("GetBucketLifecycleConfiguration", "lifecycle", none(s3err.NoSuchLifecycleConfiguration)),
		probe("GetBucketLogging", "logging", empty("BucketLoggingStatus")),
		probe("GetBucketNotificationConfiguration", "notification", empty("NotificationConfiguration")),
		probe("GetObjectLockConfiguration", "object-lock", none(s3err.ObjectLockNotFound)),
		probe("GetBucketOwnershipControls", "ownershipControls", none(s3err.OwnershipControlsNotFound)),
		probe("GetBucketPolicy", "policy", none(s3err.NoSuchBucketPolicy)),
		probe("GetBucketPolicyStatus", "policyStatus", none(s3err.NoSuchBucketPolicy)),
		probe("GetPublicAccessBlock", "publicAccessBlock", none(s3err.NoSuchPublicAccessBlock)),
		probe("GetBucketReplication", "replication", none(s3err.ReplicationNotFound)),
		probe("GetBucketRequestPayment", "requestPayment", s3Answer(func(w *s3xml.Writer, _ *Server) {
			w.Single("RequestPaymentConfiguration", "Payer", "BucketOwner")
		})),
		probe("GetBucketTagging", "tagging", none(s3err.NoSuchTagSet)),
		probe("GetBucketVersioning", "versioning", empty("VersioningConfiguration")),
		probe("GetBucketWebsite", "website", none(s3err.NoSuchWebsiteConfiguration)),
		list("ListBucketAnalyticsConfigurations", "analytics", "ListBucketAnalyticsConfigurationResult"),
		list("ListBucketIntelligentTieringConfigurations", "intelligent-tiering", "ListBucketIntelligentTieringConfigurationsOutput"),
		list("ListBucketInventoryConfigurations", "inventory", "ListInventoryConfigurationsResult"),
		list("ListBucketMetricsConfigurations", "metrics", "ListMetricsConfigurationsResult"),
	}
}

// none answers that an existing bucket has no such setting.
func none(code s3err.Code) handler {
	return func(s *Server, _ *response, r *request) error {
		if _, err := s.opt.Buckets.HeadBucket(r.ctx, r.target.bucket); err != nil {
			return err
		}
		return s3err.New(code).With("BucketName", r.target.bucket)
	}
}

// empty answers for an existing bucket with a document without content.
func empty(root string) handler {
	return s3Answer(func(w *s3xml.Writer, _ *Server) { w.Empty(root) })
}

// s3Answer answers for an existing bucket with a document.
func s3Answer(write func(w *s3xml.Writer, s *Server)) handler {
	return func(s *Server, w *response, r *request) error {
		if _, err := s.opt.Buckets.HeadBucket(r.ctx, r.target.bucket); err != nil {
			return err
		}
		return w.document(func(x *s3xml.Writer) { write(x, s) })
	}
}
