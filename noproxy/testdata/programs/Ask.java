import java.net.Proxy;
import java.net.ProxySelector;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;

/**
 * Reads pairs of http.nonProxyHosts and a URL, each text followed by a NUL, and
 * prints a line for each pair: direct, proxy, or nothing for a URL that is
 * refused. Nothing is connected to.
 */
class Ask {
    public static void main(String[] args) throws Exception {
        System.setProperty("http.proxyHost", "192.0.2.1");
        System.setProperty("https.proxyHost", "192.0.2.1");
        String[] texts = new String(System.in.readAllBytes(), StandardCharsets.UTF_8).split("\0", -1);
        for (int i = 0; i + 1 < texts.length; i += 2) {
            System.setProperty("http.nonProxyHosts", texts[i]);
            if (texts[i].isEmpty()) {
                System.clearProperty("http.nonProxyHosts");
            }
            System.out.println(ask(texts[i + 1]));
        }
    }

    static String ask(String url) {
        try {
            boolean direct = ProxySelector.getDefault().select(new URI(url)).contains(Proxy.NO_PROXY);
            return direct ? "direct" : "proxy";
        } catch (IllegalArgumentException | URISyntaxException e) {
            return "";
        }
    }
}
