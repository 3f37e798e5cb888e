package s3err

import "net/http"

// entry is what a code says unless its user says otherwise.
type entry struct {
	status  int
	message string
}

// Codes about who asks.
const (
	AccessDenied                      Code = "AccessDenied"
	AllAccessDisabled                 Code = "AllAccessDisabled"
	AuthorizationHeaderMalformed      Code = "AuthorizationHeaderMalformed"
	AuthorizationQueryParametersError Code = "AuthorizationQueryParametersError"
	CredentialsNotSupported           Code = "CredentialsNotSupported"
	ExpiredToken                      Code = "ExpiredToken"
	InvalidAccessKeyID                Code = "InvalidAccessKeyId"
	InvalidSecurity                   Code = "InvalidSecurity"
	InvalidToken                      Code = "InvalidToken"
	MissingSecurityHeader             Code = "MissingSecurityHeader"
	RequestExpired                    Code = "RequestExpired"
	RequestTimeTooSkewed              Code = "RequestTimeTooSkewed"
	SignatureDoesNotMatch             Code = "SignatureDoesNotMatch"
	TokenRefreshRequired              Code = "TokenRefreshRequired"
)

// Codes about the body and what vouches for it.
const (
	BadDigest                 Code = "BadDigest"
	EntityTooLarge            Code = "EntityTooLarge"
	EntityTooSmall            Code = "EntityTooSmall"
	IncompleteBody            Code = "IncompleteBody"
	InvalidChunkSizeError     Code = "InvalidChunkSizeError"
	InvalidDigest             Code = "InvalidDigest"
	MalformedTrailerError     Code = "MalformedTrailerError"
	MaxMessageLengthExceeded  Code = "MaxMessageLengthExceeded"
	MissingContentLength      Code = "MissingContentLength"
	MissingRequestBodyError   Code = "MissingRequestBodyError"
	RequestTimeout            Code = "RequestTimeout"
	UnexpectedContent         Code = "UnexpectedContent"
	XAmzContentChecksumFail   Code = "XAmzContentChecksumMismatch"
	XAmzContentSHA256Mismatch Code = "XAmzContentSHA256Mismatch"
)

// Codes about the form of a request.
const (
	IllegalLocationConstraintException Code = "IllegalLocationConstraintException"
	IllegalVersioningConfiguration     Code = "IllegalVersioningConfigurationException"
	InvalidArgument                    Code = "InvalidArgument"
	InvalidBucketName                  Code = "InvalidBucketName"
	InvalidEncryptionAlgorithm         Code = "InvalidEncryptionAlgorithmError"
	InvalidHostHeader                  Code = "InvalidHostHeader"
	InvalidLocationConstraint          Code = "InvalidLocationConstraint"
	InvalidPart                        Code = "InvalidPart"
	InvalidPartNumber                  Code = "InvalidPartNumber"
	InvalidPartOrder                   Code = "InvalidPartOrder"
	InvalidPolicyDocument              Code = "InvalidPolicyDocument"
	InvalidRange                       Code = "InvalidRange"
	InvalidRequest                     Code = "InvalidRequest"
	InvalidStorageClass                Code = "InvalidStorageClass"
	InvalidTag                         Code = "InvalidTag"
	InvalidURI                         Code = "InvalidURI"
	KeyTooLongError                    Code = "KeyTooLongError"
	MalformedACLError                  Code = "MalformedACLError"
	MalformedPOSTRequest               Code = "MalformedPOSTRequest"
	MalformedPolicy                    Code = "MalformedPolicy"
	MalformedXML                       Code = "MalformedXML"
	MetadataTooLarge                   Code = "MetadataTooLarge"
	MethodNotAllowed                   Code = "MethodNotAllowed"
	NotImplemented                     Code = "NotImplemented"
	RequestHeaderSectionTooLarge       Code = "RequestHeaderSectionTooLarge"
	RequestIsNotMultiPartContent       Code = "RequestIsNotMultiPartContent"
	TooManyParts                       Code = "TooManyParts"
	UnresolvableGrantByEmailAddress    Code = "UnresolvableGrantByEmailAddress"
	UserKeyMustBeSpecified             Code = "UserKeyMustBeSpecified"
)

// Codes about what is or is not there.
const (
	BucketAlreadyExists           Code = "BucketAlreadyExists"
	BucketAlreadyOwnedByYou       Code = "BucketAlreadyOwnedByYou"
	BucketNotEmpty                Code = "BucketNotEmpty"
	ConditionalRequestConflict    Code = "ConditionalRequestConflict"
	InvalidBucketState            Code = "InvalidBucketState"
	InvalidObjectState            Code = "InvalidObjectState"
	NoSuchBucket                  Code = "NoSuchBucket"
	NoSuchBucketPolicy            Code = "NoSuchBucketPolicy"
	NoSuchCORSConfiguration       Code = "NoSuchCORSConfiguration"
	NoSuchConfiguration           Code = "NoSuchConfiguration"
	NoSuchKey                     Code = "NoSuchKey"
	NoSuchLifecycleConfiguration  Code = "NoSuchLifecycleConfiguration"
	NoSuchObjectLockConfiguration Code = "NoSuchObjectLockConfiguration"
	NoSuchPublicAccessBlock       Code = "NoSuchPublicAccessBlockConfiguration"
	NoSuchTagSet                  Code = "NoSuchTagSet"
	NoSuchUpload                  Code = "NoSuchUpload"
	NoSuchVersion                 Code = "NoSuchVersion"
	NoSuchWebsiteConfiguration    Code = "NoSuchWebsiteConfiguration"
	NotModified                   Code = "NotModified"
	ObjectLockNotFound            Code = "ObjectLockConfigurationNotFoundError"
	OperationAborted              Code = "OperationAborted"
	OwnershipControlsNotFound     Code = "OwnershipControlsNotFoundError"
	PreconditionFailed            Code = "PreconditionFailed"
	ReplicationNotFound           Code = "ReplicationConfigurationNotFoundError"
	ServerSideEncryptionNotFound  Code = "ServerSideEncryptionConfigurationNotFoundError"
	TooManyBuckets                Code = "TooManyBuckets"
)

// Codes about the state of the gateway.
const (
	Busy                Code = "Busy"
	InternalError       Code = "InternalError"
	InsufficientStorage Code = "InsufficientStorage"
	ServiceUnavailable  Code = "ServiceUnavailable"
	SlowDown            Code = "SlowDown"
)

// table is the one place where a status or a default text is decided. It never
// changes after start.
var table = map[Code]entry{
	AccessDenied:                      {http.StatusForbidden, "Access Denied"},
	AllAccessDisabled:                 {http.StatusForbidden, "All access to this resource has been disabled."},
	AuthorizationHeaderMalformed:      {http.StatusBadRequest, "The authorization header you provided is invalid."},
	AuthorizationQueryParametersError: {http.StatusBadRequest, "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."},
	CredentialsNotSupported:           {http.StatusBadRequest, "This request does not support credentials."},
	ExpiredToken:                      {http.StatusBadRequest, "The provided token has expired."},
	InvalidAccessKeyID:                {http.StatusForbidden, "The AWS Access Key Id you provided does not exist in our records."},
	InvalidSecurity:                   {http.StatusForbidden, "The provided security credentials are not valid."},
	InvalidToken:                      {http.StatusBadRequest, "The provided token is malformed or otherwise invalid."},
	MissingSecurityHeader:             {http.StatusBadRequest, "Your request is missing a required header."},
	RequestExpired:                    {http.StatusBadRequest, "Request has expired."},
	RequestTimeTooSkewed:              {http.StatusForbidden, "The difference between the request time and the current time is too large."},
	SignatureDoesNotMatch:             {http.StatusForbidden, "The request signature we calculated does not match the signature you provided. Check your key and signing method."},
	TokenRefreshRequired:              {http.StatusBadRequest, "The provided token must be refreshed."},

	BadDigest:                 {http.StatusBadRequest, "The Content-MD5 you specified did not match what we received."},
	EntityTooLarge:            {http.StatusBadRequest, "Your proposed upload exceeds the maximum allowed size."},
	EntityTooSmall:            {http.StatusBadRequest, "Your proposed upload is smaller than the minimum allowed size."},
	IncompleteBody:            {http.StatusBadRequest, "You did not provide the number of bytes specified by the Content-Length HTTP header."},
	InvalidChunkSizeError:     {http.StatusBadRequest, "Only the last chunk is allowed to have a size less than 8192 bytes."},
	InvalidDigest:             {http.StatusBadRequest, "The Content-MD5 you specified was invalid."},
	MalformedTrailerError:     {http.StatusBadRequest, "The request contained trailing data that was not well-formed or did not conform to our published schema."},
	MaxMessageLengthExceeded:  {http.StatusBadRequest, "Your request was too big."},
	MissingContentLength:      {http.StatusLengthRequired, "You must provide the Content-Length HTTP header."},
	MissingRequestBodyError:   {http.StatusBadRequest, "Request body is empty."},
	RequestTimeout:            {http.StatusBadRequest, "Your socket connection to the server was not read from or written to within the timeout period."},
	UnexpectedContent:         {http.StatusBadRequest, "This request does not support content."},
	XAmzContentChecksumFail:   {http.StatusBadRequest, "The provided 'x-amz-checksum' header does not match what was computed."},
	XAmzContentSHA256Mismatch: {http.StatusBadRequest, "The provided 'x-amz-content-sha256' header does not match what was computed."},

	IllegalLocationConstraintException: {http.StatusBadRequest, "The location constraint is incompatible for the region specific endpoint this request was sent to."},
	IllegalVersioningConfiguration:     {http.StatusBadRequest, "The versioning configuration specified in the request is invalid."},
	InvalidArgument:                    {http.StatusBadRequest, "Invalid Argument"},
	InvalidBucketName:                  {http.StatusBadRequest, "The specified bucket is not valid."},
	InvalidEncryptionAlgorithm:         {http.StatusBadRequest, "The encryption request you specified is not valid. The valid value is AES256."},
	InvalidHostHeader:                  {http.StatusBadRequest, "The host headers provided in the request used the incorrect style addressing."},
	InvalidLocationConstraint:          {http.StatusBadRequest, "The specified location-constraint is not valid"},
	InvalidPart:                        {http.StatusBadRequest, "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may not match the part's entity tag."},
	InvalidPartNumber:                  {http.StatusRequestedRangeNotSatisfiable, "The requested partnumber is not satisfiable"},
	InvalidPartOrder:                   {http.StatusBadRequest, "The list of parts was not in ascending order. Parts must be ordered by part number."},
	InvalidPolicyDocument:              {http.StatusBadRequest, "The content of the form does not meet the conditions specified in the policy document."},
	InvalidRange:                       {http.StatusRequestedRangeNotSatisfiable, "The requested range is not satisfiable"},
	InvalidRequest:                     {http.StatusBadRequest, "Invalid Request"},
	InvalidStorageClass:                {http.StatusBadRequest, "The storage class you specified is not valid"},
	InvalidTag:                         {http.StatusBadRequest, "The tag provided was not a valid tag. This error can occur if the tag did not pass input validation."},
	InvalidURI:                         {http.StatusBadRequest, "Couldn't parse the specified URI."},
	KeyTooLongError:                    {http.StatusBadRequest, "Your key is too long"},
	MalformedACLError:                  {http.StatusBadRequest, "The XML you provided was not well-formed or did not validate against our published schema"},
	MalformedPOSTRequest:               {http.StatusBadRequest, "The body of your POST request is not well-formed multipart/form-data."},
	MalformedPolicy:                    {http.StatusBadRequest, "Policies must be valid JSON and the first byte must be '{'"},
	MalformedXML:                       {http.StatusBadRequest, "The XML you provided was not well-formed or did not validate against our published schema"},
	MetadataTooLarge:                   {http.StatusBadRequest, "Your metadata headers exceed the maximum allowed metadata size"},
	MethodNotAllowed:                   {http.StatusMethodNotAllowed, "The specified method is not allowed against this resource."},
	NotImplemented:                     {http.StatusNotImplemented, "A header you provided implies functionality that is not implemented"},
	RequestHeaderSectionTooLarge:       {http.StatusBadRequest, "Your request header section exceeds the maximum allowed request header section size."},
	RequestIsNotMultiPartContent:       {http.StatusPreconditionFailed, "Bucket POST must be of the enclosure-type multipart/form-data."},
	TooManyParts:                       {http.StatusBadRequest, "You have attempted to create more parts than the maximum allowed number of parts."},
	UnresolvableGrantByEmailAddress:    {http.StatusBadRequest, "The email address you provided does not match any account on record."},
	UserKeyMustBeSpecified:             {http.StatusBadRequest, "The bucket POST must contain the specified field name. If it is specified, check the order of the fields."},

	BucketAlreadyExists:           {http.StatusConflict, "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please select a different name and try again."},
	BucketAlreadyOwnedByYou:       {http.StatusConflict, "Your previous request to create the named bucket succeeded and you already own it."},
	BucketNotEmpty:                {http.StatusConflict, "The bucket you tried to delete is not empty"},
	ConditionalRequestConflict:    {http.StatusConflict, "The conditional request cannot succeed due to a conflicting operation against this resource."},
	InvalidBucketState:            {http.StatusConflict, "The request is not valid for the current state of the bucket."},
	InvalidObjectState:            {http.StatusForbidden, "The operation is not valid for the current state of the object."},
	NoSuchBucket:                  {http.StatusNotFound, "The specified bucket does not exist"},
	NoSuchBucketPolicy:            {http.StatusNotFound, "The bucket policy does not exist"},
	NoSuchCORSConfiguration:       {http.StatusNotFound, "The CORS configuration does not exist"},
	NoSuchConfiguration:           {http.StatusNotFound, "The specified configuration does not exist."},
	NoSuchKey:                     {http.StatusNotFound, "The specified key does not exist."},
	NoSuchLifecycleConfiguration:  {http.StatusNotFound, "The lifecycle configuration does not exist"},
	NoSuchObjectLockConfiguration: {http.StatusNotFound, "The specified object does not have a ObjectLock configuration"},
	NoSuchPublicAccessBlock:       {http.StatusNotFound, "The public access block configuration was not found"},
	NoSuchTagSet:                  {http.StatusNotFound, "The TagSet does not exist"},
	NoSuchUpload:                  {http.StatusNotFound, "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."},
	NoSuchVersion:                 {http.StatusNotFound, "The specified version does not exist."},
	NoSuchWebsiteConfiguration:    {http.StatusNotFound, "The specified bucket does not have a website configuration"},
	NotModified:                   {http.StatusNotModified, "Not Modified"},
	ObjectLockNotFound:            {http.StatusNotFound, "Object Lock configuration does not exist for this bucket"},
	OperationAborted:              {http.StatusConflict, "A conflicting conditional operation is currently in progress against this resource. Please try again."},
	OwnershipControlsNotFound:     {http.StatusNotFound, "The bucket ownership controls were not found"},
	PreconditionFailed:            {http.StatusPreconditionFailed, "At least one of the pre-conditions you specified did not hold"},
	ReplicationNotFound:           {http.StatusNotFound, "The replication configuration was not found"},
	ServerSideEncryptionNotFound:  {http.StatusNotFound, "The server side encryption configuration was not found"},
	TooManyBuckets:                {http.StatusBadRequest, "You have attempted to create more buckets than allowed"},

	Busy:                {http.StatusServiceUnavailable, "The service is unavailable. Please retry."},
	InternalError:       {http.StatusInternalServerError, "We encountered an internal error. Please try again."},
	InsufficientStorage: {http.StatusInsufficientStorage, "There is not enough space left to store this. Reads and deletes still work."},
	ServiceUnavailable:  {http.StatusServiceUnavailable, "Service is unable to handle request."},
	SlowDown:            {http.StatusServiceUnavailable, "Please reduce your request rate."},
}
