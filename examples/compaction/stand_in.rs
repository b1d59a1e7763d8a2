//! The provider of the example: a server on this machine that answers when the scene tells it to.
//!
//! It is another program in all but name, so it has an application of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tenure::actors::{Application, ApplicationSpec, BoxError, ProcessContext, ProcessSpec};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::client::{read_body, read_head};

pub(crate) struct StandIn {
    pub(crate) address: SocketAddr,
    application: Application,
    calls: mpsc::UnboundedReceiver<Call>,
}

/// A request that waits for its answer.
pub(crate) struct Call {
    pub(crate) number: usize,
    pub(crate) request: String,
    stream: BufReader<TcpStream>,
}

impl StandIn {
    pub(crate) async fn open() -> Result<Self, BoxError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (arrived, calls) = mpsc::unbounded_channel();
        let application = Application::open(ApplicationSpec::default()).await?;
        let server = ProcessSpec::function("server", |context: ProcessContext| async move {
            tokio::select! {
                served = serve(listener, arrived) => Ok(served?),
                () = context.cancelled() => Ok(()),
            }
        });
        application.current().registry().start("server", server).await?;
        Ok(Self { address, application, calls })
    }

    /// The next request, as soon as it has come in.
    pub(crate) async fn next_call(&mut self) -> Result<Call, BoxError> {
        self.calls.recv().await.ok_or_else(|| "the stand-in does not serve any more".into())
    }

    /// Whether every request that came in was seen by a scene.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) async fn close(self) -> Result<(), BoxError> {
        self.application.close().await?;
        Ok(())
    }
}

async fn serve(listener: TcpListener, arrived: mpsc::UnboundedSender<Call>) -> io::Result<()> {
    for number in 1.. {
        let (stream, _) = listener.accept().await?;
        let mut stream = BufReader::new(stream);
        let head = read_head(&mut stream).await?;
        let body = read_body(&mut stream, head.body_bytes, |_| {}).await?;
        let request = format!("{}, messages: {}", head.first_line, body.lines().count());
        if arrived.send(Call { number, request, stream }).is_err() {
            break;
        }
    }
    Ok(())
}

impl Call {
    pub(crate) async fn answer(self, text: &str) -> io::Result<()> {
        self.begin("200 OK", text, text.len()).await?.finish().await
    }

    pub(crate) async fn refuse(self, status: &str, text: &str) -> io::Result<()> {
        self.begin(status, text, text.len()).await?.finish().await
    }

    /// Answers half of the text now and the rest when the scene asks for it.
    pub(crate) async fn answer_half<'a>(self, text: &'a str) -> io::Result<HalfAnswered<'a>> {
        self.begin("200 OK", text, text.len() / 2).await
    }

    async fn begin<'a>(mut self, status: &str, text: &'a str, now: usize) -> io::Result<HalfAnswered<'a>> {
        let (begin, rest) = text.split_at(now);
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", text.len());
        self.stream.write_all(format!("{head}{begin}").as_bytes()).await?;
        Ok(HalfAnswered { stream: self.stream, rest })
    }

    /// Completes when the client has closed the connection.
    pub(crate) async fn hung_up(mut self) {
        let mut nothing = [0; 1];
        // The end of the stream or its reset: either way nobody listens any more.
        while let Ok(1..) = self.stream.read(&mut nothing).await {}
    }
}

pub(crate) struct HalfAnswered<'a> {
    stream: BufReader<TcpStream>,
    rest: &'a str,
}

impl HalfAnswered<'_> {
    pub(crate) async fn finish(mut self) -> io::Result<()> {
        self.stream.write_all(self.rest.as_bytes()).await?;
        self.stream.shutdown().await
    }
}
