use super::*;
use tonic::Response;

#[test]
fn endpoints_are_unix_sockets() {
    assert_eq!(
        socket_path("unix:///run/x.sock").ok(),
        Some(PathBuf::from("/run/x.sock"))
    );
    assert_eq!(socket_path("/run/x.sock").ok(), Some(PathBuf::from("/run/x.sock")));
    assert!(socket_path("tcp://127.0.0.1:1").is_err());
    assert!(socket_path("run/x.sock").is_err());
}

#[tokio::test]
async fn an_absent_runtime_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("none.sock");
    let endpoint = format!("unix://{}", path.display());
    let runtime = CriRuntime::new(&endpoint, None, Duration::from_secs(5)).expect("endpoint");
    let error = runtime.version().await.expect_err("nobody listens");
    assert_eq!(error.code, Code::Unavailable, "{error}");
}

/// An image service whose list is longer than a message may be.
struct Hoarder;

#[async_trait]
impl pb::image_service_server::ImageService for Hoarder {
    type StreamImagesStream = BoxStream<'static, Result<pb::StreamImagesResponse, Status>>;

    async fn list_images(
        &self,
        _: tonic::Request<pb::ListImagesRequest>,
    ) -> Result<Response<pb::ListImagesResponse>, Status> {
        let image = pb::Image {
            id: "x".repeat(MESSAGE_BYTES_MAX),
            ..pb::Image::default()
        };
        Ok(Response::new(pb::ListImagesResponse { images: vec![image] }))
    }

    async fn stream_images(
        &self,
        _: tonic::Request<pb::StreamImagesRequest>,
    ) -> Result<Response<Self::StreamImagesStream>, Status> {
        Err(Status::unimplemented("no streams"))
    }

    async fn image_status(
        &self,
        _: tonic::Request<pb::ImageStatusRequest>,
    ) -> Result<Response<pb::ImageStatusResponse>, Status> {
        Ok(Response::new(pb::ImageStatusResponse::default()))
    }

    async fn pull_image(
        &self,
        _: tonic::Request<pb::PullImageRequest>,
    ) -> Result<Response<pb::PullImageResponse>, Status> {
        Err(Status::unimplemented("no pulls"))
    }

    async fn remove_image(
        &self,
        _: tonic::Request<pb::RemoveImageRequest>,
    ) -> Result<Response<pb::RemoveImageResponse>, Status> {
        Err(Status::not_found("not there"))
    }

    async fn image_fs_info(
        &self,
        _: tonic::Request<pb::ImageFsInfoRequest>,
    ) -> Result<Response<pb::ImageFsInfoResponse>, Status> {
        Ok(Response::new(pb::ImageFsInfoResponse::default()))
    }
}

#[tokio::test]
async fn a_reply_beyond_the_bound_is_told_and_the_connection_goes_on() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("cri.sock");
    let listener = tokio::net::UnixListener::bind(&path).expect("bind");
    let service = pb::image_service_server::ImageServiceServer::new(Hoarder).max_encoding_message_size(usize::MAX);
    let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
    let server = tonic::transport::Server::builder().add_service(service);
    let server = tokio::spawn(server.serve_with_incoming(incoming));
    let runtime = CriRuntime::new(&path.display().to_string(), None, Duration::from_secs(20)).expect("endpoint");
    let error = runtime.list_images().await.expect_err("too large");
    assert_eq!(
        error.to_string(),
        "rpc error: code = ResourceExhausted desc = grpc: received message larger than max (16777226 vs. 16777216)"
    );
    assert_eq!(runtime.image_status("x").await, Ok(None), "the next call is answered");
    assert_eq!(runtime.remove_image("x").await, Ok(()));
    server.abort();
}
