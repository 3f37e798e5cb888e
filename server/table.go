package server

import "net/http"

const (
	get    = http.MethodGet
	head   = http.MethodHead
	put    = http.MethodPut
	post   = http.MethodPost
	del    = http.MethodDelete
	option = http.MethodOptions
)

// Ordinary parameters that several operations share.
var (
	overrides = []string{
		"response-cache-control", "response-content-disposition", "response-content-encoding",
		"response-content-language", "response-content-type", "response-expires",
	}
	readParams = append([]string{"versionId", "partNumber"}, overrides...)
	// Each listing ignores what belongs to the others, as on AWS, and metadata,
	// with which mc asks MinIO for more than S3 gives.
	listParams = []string{
		"prefix", "delimiter", "marker", "max-keys", "encoding-type", "continuation-token", "start-after", "fetch-owner", "list-type", "metadata",
	}
	versioned = []string{"versionId"}
)

// operations is the table of all operations of S3, with those that Ringfence
// doesn't have. A row without handler answers NotImplemented.
func operations() []operation {
	var all []operation
	for _, part := range [][]operation{
		serviceOperations(), bucketOperations(), bucketConfigurations(), bucketProbes(), objectOperations(), objectConfigurations(), uploadOperations(),
	} {
		all = append(all, part...)
	}
	return all
}

func serviceOperations() []operation {
	return []operation{
		{name: "ListBuckets", method: get, scope: onService, params: []string{"max-buckets", "continuation-token", "prefix", "bucket-region"}, handle: (*Server).listBuckets},
		{name: "ListDirectoryBuckets", method: get, scope: onService, query: []string{"max-directory-buckets"}, params: []string{"continuation-token"}},
		{name: "WriteGetObjectResponse", method: post, scope: onService},
		{name: "Preflight", method: option, scope: onService, open: true, handle: (*Server).preflight},
	}
}

func bucketOperations() []operation {
	return []operation{
		{name: "CreateBucket", method: put, scope: onBucket, handle: (*Server).createBucket},
		{name: "HeadBucket", method: head, scope: onBucket, handle: (*Server).headBucket},
		{name: "DeleteBucket", method: del, scope: onBucket, handle: (*Server).deleteBucket},
		{name: "ListObjects", method: get, scope: onBucket, params: listParams, handle: (*Server).listObjectsV1},
		{name: "ListObjectsV2", method: get, scope: onBucket, query: []string{"list-type=2"}, params: listParams, handle: (*Server).listObjectsV2},
		{name: "ListObjectVersions", method: get, scope: onBucket, query: []string{"versions"}, params: []string{"prefix", "delimiter", "max-keys", "encoding-type", "key-marker", "version-id-marker", "metadata"}, handle: (*Server).listVersions},
		{name: "ListMultipartUploads", method: get, scope: onBucket, query: []string{"uploads"}, params: []string{"prefix", "delimiter", "max-uploads", "encoding-type", "key-marker", "upload-id-marker"}, handle: (*Server).listUploads},
		{name: "DeleteObjects", method: post, scope: onBucket, query: []string{"delete"}, handle: (*Server).deleteObjects},
		{name: "PostObject", method: post, scope: onBucket},
		{name: "GetBucketLocation", method: get, scope: onBucket, query: []string{"location"}, handle: (*Server).getBucketLocation},
		{name: "CreateSession", method: get, scope: onBucket, query: []string{"session"}},
		{name: "Preflight", method: option, scope: onBucket, open: true, handle: (*Server).preflight},
	}
}

// bucketConfigurations are the writes of a bucket's settings, and the reads
// that have no answer yet. bucketProbes has the reads that do.
func bucketConfigurations() []operation {
	config := func(name, method string, query ...string) operation {
		return operation{name: name, method: method, scope: onBucket, query: query}
	}
	return []operation{
		config("PutBucketAccelerateConfiguration", put, "accelerate"),
		config("PutBucketAcl", put, "acl"),
		config("PutBucketAnalyticsConfiguration", put, "analytics", "id"),
		config("GetBucketAnalyticsConfiguration", get, "analytics", "id"),
		config("DeleteBucketAnalyticsConfiguration", del, "analytics", "id"),
		config("GetBucketAbac", get, "abac"),
		config("PutBucketAbac", put, "abac"),
		config("PutBucketCors", put, "cors"),
		config("DeleteBucketCors", del, "cors"),
		config("PutBucketEncryption", put, "encryption"),
		config("DeleteBucketEncryption", del, "encryption"),
		config("GetBucketIntelligentTieringConfiguration", get, "intelligent-tiering", "id"),
		config("PutBucketIntelligentTieringConfiguration", put, "intelligent-tiering", "id"),
		config("DeleteBucketIntelligentTieringConfiguration", del, "intelligent-tiering", "id"),
		config("GetBucketInventoryConfiguration", get, "inventory", "id"),
		config("PutBucketInventoryConfiguration", put, "inventory", "id"),
		config("DeleteBucketInventoryConfiguration", del, "inventory", "id"),
		config("PutBucketLifecycleConfiguration", put, "lifecycle"),
		config("DeleteBucketLifecycle", del, "lifecycle"),
		config("PutBucketLogging", put, "logging"),
		config("CreateBucketMetadataConfiguration", post, "metadataConfiguration"),
		config("GetBucketMetadataConfiguration", get, "metadataConfiguration"),
		config("DeleteBucketMetadataConfiguration", del, "metadataConfiguration"),
		config("CreateBucketMetadataTableConfiguration", post, "metadataTable"),
		config("GetBucketMetadataTableConfiguration", get, "metadataTable"),
		config("DeleteBucketMetadataTableConfiguration", del, "metadataTable"),
		config("UpdateBucketMetadataInventoryTableConfiguration", put, "metadataInventoryTable"),
		config("UpdateBucketMetadataJournalTableConfiguration", put, "metadataJournalTable"),
		config("GetBucketMetricsConfiguration", get, "metrics", "id"),
		config("PutBucketMetricsConfiguration", put, "metrics", "id"),
		config("DeleteBucketMetricsConfiguration", del, "metrics", "id"),
		config("PutBucketNotificationConfiguration", put, "notification"),
		config("PutObjectLockConfiguration", put, "object-lock"),
		config("PutBucketOwnershipControls", put, "ownershipControls"),
		config("DeleteBucketOwnershipControls", del, "ownershipControls"),
		config("PutBucketPolicy", put, "policy"),
		config("DeleteBucketPolicy", del, "policy"),
		config("PutPublicAccessBlock", put, "publicAccessBlock"),
		config("DeletePublicAccessBlock", del, "publicAccessBlock"),
		config("PutBucketReplication", put, "replication"),
		config("DeleteBucketReplication", del, "replication"),
		config("PutBucketRequestPayment", put, "requestPayment"),
		config("PutBucketTagging", put, "tagging"),
		config("DeleteBucketTagging", del, "tagging"),
		config("PutBucketVersioning", put, "versioning"),
		config("PutBucketWebsite", put, "website"),
		config("DeleteBucketWebsite", del, "website"),
	}
}

func objectOperations() []operation {
	return []operation{
		{name: "GetObject", method: get, scope: onObject, params: readParams, handle: (*Server).getObject},
		{name: "HeadObject", method: head, scope: onObject, params: readParams, handle: (*Server).headObject},
		{name: "PutObject", method: put, scope: onObject, handle: (*Server).putObject},
		{name: "CopyObject", method: put, scope: onObject, header: "x-amz-copy-source", handle: (*Server).copyObject},
		{name: "DeleteObject", method: del, scope: onObject, params: versioned, handle: (*Server).deleteObject},
		{name: "GetObjectAttributes", method: get, scope: onObject, query: []string{"attributes"}, params: versioned, handle: (*Server).getObjectAttributes},
		{name: "GetObjectTorrent", method: get, scope: onObject, query: []string{"torrent"}},
		{name: "RestoreObject", method: post, scope: onObject, query: []string{"restore"}, params: versioned},
		{name: "SelectObjectContent", method: post, scope: onObject, query: []string{"select", "select-type=2"}},
		{name: "RenameObject", method: put, scope: onObject, query: []string{"renameObject"}},
		{name: "UpdateObjectEncryption", method: put, scope: onObject, query: []string{"encryption"}, params: versioned},
		{name: "Preflight", method: option, scope: onObject, open: true, handle: (*Server).preflight},
	}
}

func objectConfigurations() []operation {
	config := func(name, method, query string, handle handler) operation {
		return operation{name: name, method: method, scope: onObject, query: []string{query}, params: versioned, handle: handle}
	}
	return []operation{
		config("GetObjectAcl", get, "acl", (*Server).getObjectACL),
		config("PutObjectAcl", put, "acl", nil),
		config("GetObjectLegalHold", get, "legal-hold", nil),
		config("PutObjectLegalHold", put, "legal-hold", nil),
		config("GetObjectRetention", get, "retention", nil),
		config("PutObjectRetention", put, "retention", nil),
		config("GetObjectTagging", get, "tagging", (*Server).getObjectTagging),
		config("PutObjectTagging", put, "tagging", nil),
		config("DeleteObjectTagging", del, "tagging", nil),
	}
}

func uploadOperations() []operation {
	part := []string{"partNumber", "uploadId"}
	return []operation{
		{name: "CreateMultipartUpload", method: post, scope: onObject, query: []string{"uploads"}, handle: (*Server).createUpload},
		{name: "UploadPart", method: put, scope: onObject, query: part, handle: (*Server).uploadPart},
		{name: "UploadPartCopy", method: put, scope: onObject, query: part, header: "x-amz-copy-source", handle: (*Server).uploadPartCopy},
		{name: "CompleteMultipartUpload", method: post, scope: onObject, query: []string{"uploadId"}, handle: (*Server).completeUpload},
		{name: "AbortMultipartUpload", method: del, scope: onObject, query: []string{"uploadId"}, handle: (*Server).abortUpload},
		{name: "ListParts", method: get, scope: onObject, query: []string{"uploadId"}, params: []string{"max-parts", "part-number-marker", "encoding-type"}, handle: (*Server).listParts},
	}
}
