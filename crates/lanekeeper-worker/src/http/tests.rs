use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};

use super::*;

const DONE: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const WITH_BODY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const IN_PIECES: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
const THE_LAST: &str = "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
/// Nothing is said, and the connection closed.
const NOTHING: &str = "";

/// What each connection answers to the requests that come over it, one after another, before it is closed. The number of
/// each connection is told when it is closed.
async fn serve(
    connections: &'static [&'static [&'static str]],
) -> (HttpHandler, mpsc::UnboundedReceiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let handler = HttpHandler::new(&format!("http://{}/in", listener.local_addr().unwrap())).unwrap();
    let (closed, closings) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for (number, answers) in connections.iter().enumerate() {
            let (mut stream, _) = listener.accept().await.unwrap();
            let closed = closed.clone();
            tokio::spawn(async move {
                for answer in *answers {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        let read = stream.read_buf(&mut request).await.unwrap();
                        assert_ne!(read, 0, "closed in the middle of a request");
                    }
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
                drop(stream);
                closed.send(number).unwrap();
            });
        }
    });
    (handler, closings)
}

async fn post(handler: &HttpHandler) -> Result<(), HandlerError> {
    handler.post(HeaderMap::new(), Bytes::new()).await
}

#[test]
fn an_address_that_cannot_be_a_handlers_is_refused_by_name() {
    for url in ["", "handler", "https://127.0.0.1:8080/", "http://", "/path", "http://a b/"] {
        let error = HttpHandler::new(url).unwrap_err();
        assert!(error.to_string().contains(&format!("'{url}'")), "{error}");
    }
    assert_eq!(HttpHandler::new("http://127.0.0.1:8080/in").unwrap().address, "127.0.0.1:8080");
    assert_eq!(HttpHandler::new("http://localhost").unwrap().address, "localhost:80");
}

#[test]
fn the_host_names_the_port_unless_it_is_the_usual_one_and_the_path_has_the_query() {
    for (url, host, path) in [
        ("http://localhost", "localhost", "/"),
        ("http://localhost:80/in", "localhost", "/in"),
        ("http://[::1]:8080/in/?a=b", "[::1]:8080", "/in/?a=b"),
    ] {
        let handler = HttpHandler::new(url).unwrap();
        assert_eq!((handler.host.to_str().unwrap(), handler.path.to_string().as_str()), (host, path));
    }
}

#[tokio::test]
async fn one_connection_serves_all_messages_whatever_the_answers_look_like() {
    let (handler, mut closings) = serve(&[&[DONE, WITH_BODY, IN_PIECES, DONE, THE_LAST], &[DONE]]).await;
    for _ in 0..5 {
        assert_eq!(post(&handler).await, Ok(()));
    }
    assert_eq!(closings.recv().await, Some(0));
    assert_eq!(post(&handler).await, Ok(()));
    assert_eq!(closings.recv().await, Some(1));
}

#[tokio::test]
async fn a_connection_that_was_closed_since_the_last_answer_costs_no_attempt() {
    let (handler, mut closings) = serve(&[&[DONE], &[WITH_BODY, DONE], &[IN_PIECES]]).await;
    for (posts, closed) in [(1, 0), (2, 1), (1, 2)] {
        for _ in 0..posts {
            assert_eq!(post(&handler).await, Ok(()));
        }
        assert_eq!(closings.recv().await, Some(closed));
    }
}

#[tokio::test]
async fn a_request_that_was_read_and_not_answered_is_an_attempt() {
    let (handler, _closings) = serve(&[&[DONE, NOTHING], &[DONE]]).await;
    assert_eq!(post(&handler).await, Ok(()));
    let error = post(&handler).await.unwrap_err();
    assert!(matches!(error, HandlerError::Retry { .. }), "{error}");
    assert_eq!(post(&handler).await, Ok(()));
}

#[tokio::test]
async fn where_nobody_listens_is_no_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let handler = HttpHandler::new(&format!("http://{address}/in")).unwrap();
    let error = post(&handler).await.unwrap_err();
    assert!(matches!(&error, HandlerError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[tokio::test]
async fn a_request_that_is_not_waited_for_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let handler = HttpHandler::new(&format!("http://{}/in", listener.local_addr().unwrap())).unwrap();
    let given_up = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        stream
    };
    let mut stream = tokio::select! {
        answer = post(&handler) => panic!("{answer:?}"),
        stream = given_up => stream,
    };
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(handler.kept().is_none());
}
