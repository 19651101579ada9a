// Names below localhost are this machine (RFC 6761), whatever its resolver says. Loaded before every program here.
import dns from 'node:dns';

const lookUp = dns.lookup;
dns.lookup = (name, options, done) => {
    const callback = done ?? options;
    if (!name.endsWith('.localhost')) return done ? lookUp(name, options, done) : lookUp(name, options);
    const found = { address: '127.0.0.1', family: 4 };
    process.nextTick(() => (options?.all ? callback(null, [found]) : callback(null, found.address, found.family)));
};
